#ifndef DDPRUN_LAUNCHER_SCHEDULERS_KUBERNETES_DEFAULTS_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_KUBERNETES_DEFAULTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/core/environment.h"
#include "launcher/options/host.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

// Fills in what neither the command line nor a variable nor a file says from what Kubernetes gave
// this pod (docs/KUBERNETES.md); elsewhere nothing. How many nodes a Job has no pod is told, so
// that is for PET_NNODES in its manifest.
// Returns: one line for the user, what was found; "" = nothing.    Errors: plan errors (errors.h).
absl::StatusOr<std::string> ApplyKubernetes(const EnvironmentLookup& environment, const Host& host,
                                            LaunchArguments* arguments,
                                            std::vector<std::string>* warnings);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_KUBERNETES_DEFAULTS_H_
