#ifndef DDPRUN_LAUNCHER_SCHEDULERS_KUBERNETES_DEFAULTS_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_KUBERNETES_DEFAULTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/core/environment.h"
#include "launcher/options/host.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

// Fills in options that neither the command line nor a variable nor a file sets, from the variables
// of this Kubernetes pod (docs/KUBERNETES.md); elsewhere nothing. A pod doesn't know how many nodes
// its Job has, so PET_NNODES in the manifest must say that. Returns: one line for the user about
// what was found; "" = nothing.    Errors: plan errors (errors.h).
absl::StatusOr<std::string> ApplyKubernetes(const EnvironmentLookup& environment, const Host& host,
                                            LaunchArguments* arguments,
                                            std::vector<std::string>* warnings);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_KUBERNETES_DEFAULTS_H_
