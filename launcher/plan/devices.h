#ifndef DDPRUN_LAUNCHER_PLAN_DEVICES_H_
#define DDPRUN_LAUNCHER_PLAN_DEVICES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/host.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

// The entries of CUDA_VISIBLE_DEVICES in its order; empty when it is not set, one empty entry when
// it is empty.
std::vector<std::string> InheritedDevices(const EnvironmentLookup& environment);

// Fills worker_count, devices and omp_threads from --nproc_per_node, --virtual_local_rank and
// --omp_threads.
//
// gpu:1,3,5-7 means one worker for each of these devices, counted as CUDA counts them: within
// CUDA_VISIBLE_DEVICES when that is set.
// Errors: usage — not a number; plan — numbers out of range, no or too few devices.
absl::Status PlanDevices(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                         const Host& host, LaunchPlan* plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_DEVICES_H_
