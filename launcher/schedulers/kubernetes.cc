#include "launcher/schedulers/kubernetes.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/values.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

constexpr char kHostsFile[] = "/etc/hosts";
constexpr size_t kDomainBytesMax = 253;  // RFC 1035

// The variables of a pod; those without a value are as good as missing.
class PodVariables {
 public:
  explicit PodVariables(const EnvironmentLookup& environment) : environment_(environment) {}

  std::string Text(const std::string& name) const { return environment_(name).value_or(""); }
  bool Has(const std::string& name) const { return !Text(name).empty(); }

  // Errors: plan — no number, or one above `most`.
  absl::StatusOr<uint32_t> NumberOr(const std::string& name, uint32_t most,
                                    uint32_t fallback) const {
    const std::string text = Text(name);
    if (text.empty()) return fallback;
    uint32_t value = 0;
    if (absl::SimpleAtoi(text, &value) && value <= most) return value;
    return PlanError(absl::StrCat(name, " ", Quoted(text), ": is no number up to ", most,
                                  "; --no_kubernetes makes ddprun ignore such variables"));
  }

 private:
  const EnvironmentLookup& environment_;
};

// Every container of a cluster has it, whatever its pod allows itself else.
bool InKubernetes(const PodVariables& variables) {
  return variables.Has("KUBERNETES_SERVICE_HOST");
}

bool IsDomain(absl::string_view text) {
  return !text.empty() && text.size() <= kDomainBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.';
         });
}

}  // namespace

std::string DomainOfHost(absl::string_view hosts_file, absl::string_view hostname) {
  if (hostname.empty()) return "";
  for (absl::string_view line : absl::StrSplit(hosts_file, '\n')) {
    line = line.substr(0, line.find('#'));
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    for (size_t i = 1; i < words.size(); ++i) {
      absl::string_view rest = words[i];
      if (absl::ConsumePrefix(&rest, hostname) && absl::ConsumePrefix(&rest, ".") &&
          IsDomain(rest)) {
        return std::string(rest);
      }
    }
  }
  return "";
}

std::string KubernetesPod::RunId() const {
  if (!jobset.empty()) return restart == 0 ? jobset : absl::StrCat(jobset, "-restart", restart);
  absl::string_view name = hostname;
  // A pod with a name of its own still needs one that all have in common: the plan's default.
  if (!absl::ConsumeSuffix(&name, absl::StrCat("-", index)) || name.empty()) return "none";
  return std::string(name);
}

absl::StatusOr<std::string> KubernetesPod::FirstHost() const {
  absl::string_view stem = hostname;
  bool good = absl::ConsumeSuffix(&stem, absl::StrCat("-", index));
  if (jobs > 1) good = good && absl::ConsumeSuffix(&stem, absl::StrCat("-", job));
  if (!good || stem.empty()) {
    return PlanError(
        absl::StrCat("JOB_COMPLETION_INDEX ", index, ": the pod's name ", Quoted(hostname),
                     " doesn't end with its number, so nobody can tell where pod 0 is; give "
                     "--rdzv_endpoint HOST, or --no_kubernetes"));
  }
  if (domain.empty()) {
    return PlanError(absl::StrCat(
        "JOB_COMPLETION_INDEX ", index, ": other pods can't be found by name, because ", kHostsFile,
        " has no domain for ", Quoted(hostname),
        "; give the pod template a subdomain and make a headless Service of that name "
        "(docs/KUBERNETES.md), or give --rdzv_endpoint HOST, or --no_kubernetes"));
  }
  return absl::StrCat(stem, jobs > 1 ? "-0" : "", "-0.", domain);
}

absl::StatusOr<std::optional<KubernetesPod>> ReadKubernetesPod(const EnvironmentLookup& environment,
                                                               const Host& host) {
  constexpr uint32_t kMost = std::numeric_limits<int32_t>::max();
  const PodVariables variables(environment);
  if (!InKubernetes(variables) || !variables.Has("JOB_COMPLETION_INDEX")) return std::nullopt;
  KubernetesPod pod;
  DDPRUN_ASSIGN_OR_RETURN(pod.index, variables.NumberOr("JOB_COMPLETION_INDEX", kMost, 0));
  pod.hostname = host.HostName();
  // An unreadable file counts as one without the domain.
  pod.domain = DomainOfHost(host.ReadFile(kHostsFile).value_or(""), pod.hostname);
  pod.jobset = variables.Text("JOBSET_NAME");
  if (!pod.jobset.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(pod.restart, variables.NumberOr("JOBSET_RESTART_ATTEMPT", kMost, 0));
    DDPRUN_ASSIGN_OR_RETURN(
        pod.jobs, variables.NumberOr("REPLICATED_JOB_REPLICAS", rendezvous::kNodesMax, 1));
    pod.jobs = std::max(1U, pod.jobs);
    DDPRUN_ASSIGN_OR_RETURN(pod.job, variables.NumberOr("JOB_INDEX", pod.jobs - 1, 0));
  }
  return std::optional<KubernetesPod>(std::move(pod));
}

absl::StatusOr<std::optional<PyTorchJobPod>> ReadPyTorchJobPod(const EnvironmentLookup& environment,
                                                               const Host& host) {
  const PodVariables variables(environment);
  if (!InKubernetes(variables)) return std::nullopt;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"}) {
    if (!variables.Has(name)) return std::nullopt;
  }
  // In a worker of another launcher these variables count workers, not pods.
  if (variables.Has("LOCAL_RANK") || variables.Has("TORCHELASTIC_RUN_ID")) return std::nullopt;
  PyTorchJobPod pod;
  pod.master_addr = variables.Text("MASTER_ADDR");
  DDPRUN_ASSIGN_OR_RETURN(pod.nodes, variables.NumberOr("WORLD_SIZE", rendezvous::kNodesMax, 1));
  DDPRUN_ASSIGN_OR_RETURN(pod.node, variables.NumberOr("RANK", rendezvous::kNodesMax - 1, 0));
  DDPRUN_ASSIGN_OR_RETURN(
      const uint32_t port,
      variables.NumberOr("MASTER_PORT", std::numeric_limits<uint16_t>::max(), 0));
  pod.master_port = static_cast<uint16_t>(port);
  // Old operators set the master's MASTER_ADDR to localhost, which other pods can't use.
  if (pod.node == 0 && pod.master_addr == "localhost" && !host.HostName().empty()) {
    pod.master_addr = host.HostName();
  }
  return std::optional<PyTorchJobPod>(std::move(pod));
}

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
