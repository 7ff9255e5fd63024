#ifndef DDPRUN_LAUNCHER_PLAN_BINDING_H_
#define DDPRUN_LAUNCHER_PLAN_BINDING_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/host.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

// Fills numa_binding and cpu_binding from their options.
// Errors: usage — not one of the choices; plan — both are given.
absl::Status PlanBinding(const LaunchArguments& arguments, LaunchPlan* plan);

// Fills worker_cpus, and worker_omp_threads for --omp_threads auto, from this machine's topology;
// probes nothing without a binding. Separate from PlanBinding, because a file of options is often
// written on another machine. With --binding_fallback a binding that isn't possible is a warning.
// Errors: plan — those of PlanNumaBinding, PlanCpuBinding and Host.
absl::Status BindWorkers(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                         const Host& host, LaunchPlan* plan, std::vector<std::string>* warnings);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_BINDING_H_
