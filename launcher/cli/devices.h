#ifndef DDPRUN_LAUNCHER_CLI_DEVICES_H_
#define DDPRUN_LAUNCHER_CLI_DEVICES_H_

#include "absl/status/status.h"
#include "launcher/cli/host.h"
#include "launcher/cli/launch_arguments.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"

namespace ddprun::launcher {

// Fills worker_count, devices, numa_binding and omp_threads from --nproc_per_node,
// --virtual_local_rank, --numa_binding and --omp_threads.
//
// gpu:1,3,5-7 means one worker for each of these devices, counted as CUDA counts them: within
// CUDA_VISIBLE_DEVICES when that is set.
// Errors: usage — a word that is no choice; plan — numbers out of range, no or too few devices.
absl::Status PlanDevices(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                         const Host& host, LaunchPlan* plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_DEVICES_H_
