#ifndef DDPRUN_LAUNCHER_SCHEDULERS_KUBERNETES_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_KUBERNETES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/core/environment.h"
#include "launcher/options/host.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

// The pod that this process runs in: a pod of an indexed Job, alone or within a JobSet. Source: the
// Job documentation's "Job with Pod-to-Pod Communication"; JobSet's labels.
//
// Pod 0's address follows from this pod's name and its domain in /etc/hosts. So a pod needs no
// service account, and no API server, which may not be reachable. A count of the headless service's
// addresses would miss pods that aren't scheduled yet.
struct KubernetesPod {
  std::string hostname;  // "train-1": the Job's name and the pod's index
  std::string domain;    // "train.default.svc.cluster.local"; "" = no other pod can find it by name
  uint32_t index = 0;    // within the Job
  uint32_t job = 0;      // the Job's index within the JobSet's replicated job
  uint32_t jobs = 1;     // how many Jobs that has
  std::string jobset;    // the JobSet's name; "" = not known
  uint32_t restart = 0;  // how often the JobSet was restarted

  // The job's name: that of the Job, or of the JobSet with the number of its restart, so that pods
  // of the run before can't join.
  std::string RunId() const;
  // The name by which all pods reach the first one: "train-0.train.default.svc.cluster.local".
  // Errors: plan errors (argument.h) — the name can't be derived from this pod's, or doesn't exist.
  absl::StatusOr<std::string> FirstHost() const;
};

// Reads JOB_COMPLETION_INDEX and related variables, this machine's name and /etc/hosts. nullopt =
// not a pod of an indexed Job. Errors: plan errors — a variable can't be read.
absl::StatusOr<std::optional<KubernetesPod>> ReadKubernetesPod(const EnvironmentLookup& environment,
                                                               const Host& host);

// A pod of a PyTorchJob with a master, from the variables of Kubeflow's training operator.
struct PyTorchJobPod {
  uint32_t nodes = 1;
  uint32_t node = 0;        // 0: the master
  std::string master_addr;  // the name by which all pods reach the master
  uint16_t master_port = 0;
};

// Reads MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, which count pods there. nullopt = not in
// such a pod, or in a worker of another launcher. Errors: plan errors — a variable can't be read.
absl::StatusOr<std::optional<PyTorchJobPod>> ReadPyTorchJobPod(const EnvironmentLookup& environment,
                                                               const Host& host);

// The domain of `hostname` as a hosts(5) file has it: of "train-1" with the line
// "10.1.2.3 train-1.train.ns.svc train-1" that is "train.ns.svc". "" = none.
// Never throws; any bytes are fine.
std::string DomainOfHost(absl::string_view hosts_file, absl::string_view hostname);

// Fills in options that neither the command line nor a variable nor a file sets, from the variables
// of this Kubernetes pod (docs/KUBERNETES.md); elsewhere nothing. A pod doesn't know how many nodes
// its Job has, so PET_NNODES in the manifest must say that. Returns: one line for the user about
// what was found; "" = nothing.    Errors: plan errors (argument.h).
absl::StatusOr<std::string> ApplyKubernetes(const EnvironmentLookup& environment, const Host& host,
                                            LaunchArguments* arguments,
                                            std::vector<std::string>* warnings);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_KUBERNETES_H_
