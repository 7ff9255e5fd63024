#include "launcher/schedulers/kubernetes_defaults.h"

#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/errors.h"
#include "launcher/options/values.h"
#include "launcher/schedulers/kubernetes_pod.h"

namespace ddprun::launcher {
namespace {

// torchrun's for c10d. The network of a pod is its own, and rules of the network may name it.
constexpr int kPodServicePort = 29400;
constexpr char kIndexVariable[] = "JOB_COMPLETION_INDEX";

void FillFromPod(Argument* argument, const std::string& text, const std::string& source) {
  if (!argument->given()) *argument = {.text = text, .source = source};
}

// A pod has those GPUs that are its own.
void FillGpus(const Host& host, LaunchArguments* arguments, const std::string& source) {
  if (!arguments->nproc_per_node.given() && host.CudaCount() > 0) {
    FillFromPod(&arguments->nproc_per_node, "gpu", source);
  }
}

std::string FoundInPod(const std::string& what, const LaunchArguments& arguments) {
  return absl::StrCat(
      "Kubernetes: ", what, ", ", CountText(arguments.nnodes.text, "node"), ", ",
      CountText(arguments.nproc_per_node.text, "worker"), " on each, rendezvous at ",
      arguments.rdzv_endpoint.filled() ? arguments.rdzv_endpoint.text : arguments.master_addr.text,
      " (--no_kubernetes: none of this)");
}

// The pod's number in a job of `nodes` nodes; the Jobs of a JobSet have as many pods each.
absl::StatusOr<uint32_t> NumberOf(const KubernetesPod& pod, uint32_t nodes) {
  if (pod.jobs == 1) return pod.index;
  if (nodes % pod.jobs != 0) {
    return PlanError(absl::StrCat("REPLICATED_JOB_REPLICAS ", pod.jobs, ": ", nodes,
                                  " nodes can't be divided among so many Jobs; give --nnodes, or "
                                  "--no_kubernetes"));
  }
  return pod.job * (nodes / pod.jobs) + pod.index;
}

absl::StatusOr<std::string> FillIndexedJob(const KubernetesPod& pod, const Host& host,
                                           LaunchArguments* arguments,
                                           std::vector<std::string>* warnings) {
  FillGpus(host, arguments, kIndexVariable);
  if (!arguments->nnodes.given()) {
    // Pods without a domain may well be jobs of their own.
    if (!pod.domain.empty()) {
      warnings->push_back(absl::StrCat(
          "this is pod ", pod.index, " of a Job whose pods can find each other, but nothing says ",
          "how many they are: set PET_NNODES in the manifest to its completions; this is a job "
          "of one node"));
    }
    return "";
  }
  FillFromPod(&arguments->rdzv_id, pod.RunId(), kIndexVariable);
  const absl::StatusOr<NodeRange> nodes = ParseNodeRange(arguments->nnodes);
  // An invalid --nnodes is reported later, with all other options.
  if (!nodes.ok() || nodes->max < 2) return "";
  DDPRUN_ASSIGN_OR_RETURN(const uint32_t number, NumberOf(pod, nodes->max));
  const bool is_static =
      arguments->master_addr.filled() ||
      (arguments->rdzv_backend.given() && arguments->rdzv_backend.text == "static");
  if (!arguments->rdzv_endpoint.filled() && !arguments->master_addr.filled()) {
    DDPRUN_ASSIGN_OR_RETURN(const std::string first, pod.FirstHost());
    FillFromPod(&arguments->rdzv_endpoint, absl::StrCat(first, ":", kPodServicePort),
                kIndexVariable);
    arguments->hosts_service = number == 0;
  }
  // A number of its own says static; pods beyond the nodes are spares, which static has not.
  if (!is_static && !arguments->node_rank.given()) {
    FillFromPod(&arguments->rdzv_backend, "c10d", kIndexVariable);
  }
  if (is_static || number < nodes->max) {
    FillFromPod(&arguments->node_rank, absl::StrCat(number), kIndexVariable);
  }
  return number == 0 ? FoundInPod(absl::StrCat("pod 0 of ", pod.RunId()), *arguments) : "";
}

std::string FillPyTorchJob(const PyTorchJobPod& pod, const Host& host, LaunchArguments* arguments) {
  // With PET_NNODES, which newer operators set beside other PET_* variables, or with --nnodes,
  // nothing else is left to fill in.
  const bool told = arguments->nnodes.given();
  FillGpus(host, arguments, "RANK");
  if (told) return "";
  FillFromPod(&arguments->nnodes, absl::StrCat(pod.nodes), "WORLD_SIZE");
  if (arguments->rdzv_endpoint.filled() || pod.nodes < 2) return "";
  FillFromPod(&arguments->node_rank, absl::StrCat(pod.node), "RANK");
  FillFromPod(&arguments->master_addr, pod.master_addr, "MASTER_ADDR");
  if (pod.master_port != 0) {
    FillFromPod(&arguments->master_port, absl::StrCat(pod.master_port), "MASTER_PORT");
  }
  return pod.node == 0 ? FoundInPod("the master of a PyTorchJob", *arguments) : "";
}

}  // namespace

absl::StatusOr<std::string> ApplyKubernetes(const EnvironmentLookup& environment, const Host& host,
                                            LaunchArguments* arguments,
                                            std::vector<std::string>* warnings) {
  if (arguments->no_kubernetes || arguments->standalone) return "";
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<KubernetesPod> pod,
                          ReadKubernetesPod(environment, host));
  if (pod.has_value()) return FillIndexedJob(*pod, host, arguments, warnings);
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<PyTorchJobPod> replica,
                          ReadPyTorchJobPod(environment, host));
  return replica.has_value() ? FillPyTorchJob(*replica, host, arguments) : "";
}

}  // namespace ddprun::launcher
