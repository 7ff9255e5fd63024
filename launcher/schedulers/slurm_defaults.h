#ifndef DDPRUN_LAUNCHER_SCHEDULERS_SLURM_DEFAULTS_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_SLURM_DEFAULTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/host.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

// The variable in scripts of `ddprun slurm` with the number of runs without progress after which a
// job isn't requeued.
inline constexpr char kGiveUpVariable[] = "DDPRUN_SLURM_GIVE_UP_AFTER";
// The variable with the file to which the first node's agent writes its exit status. From Slurm
// 23.02 on, srun's own status is 1 or more after the loss of a node, also with --no-kill and if all
// other tasks end with 0 (Slurm's src/api/step_launch.c, _node_fail_handler).
inline constexpr char kStatusFileVariable[] = "DDPRUN_SLURM_STATUS_FILE";

// Settings of a launch that Slurm decides and that aren't options.
struct SlurmShare {
  // If the step starts several tasks on this node, the first launches for all, and holds this
  // abstract unix socket while it lives; "" = each task launches for itself. `waits`: this is
  // another task, which only waits for the first one's end.
  std::string node_socket;
  bool waits = false;
  // With DDPRUN_SLURM_REQUEUE=1, on all nodes but the first: the job that is requeued when the
  // first one is lost; "" = none.
  std::string requeue_job;
  RequeuePlan requeues;  // of kGiveUpVariable and kStatusFileVariable, on the first node
  bool found = false;    // this is a step of Slurm, or a batch script of one node
  std::string told;      // one line for the user about what was found; "" = nothing
  // EndpointPlan::alone_hint, if the other nodes are those of the step.
  std::string alone_hint;
  // EndpointPlan::name_hint, and with it ServiceTimeouts::unknown_name.
  std::string name_hint;
  absl::Duration unknown_name = absl::InfiniteDuration();
  // As JobSpec::agents_started.
  uint32_t agents_started = 0;
};

// Fills in options that neither the command line nor a variable nor a file sets, from Slurm's
// variables (docs/SLURM.md), if there are any. The variable is recorded as their source. Errors:
// plan errors (argument.h).
absl::StatusOr<SlurmShare> ApplySlurm(const EnvironmentLookup& environment, const Host& host,
                                      LaunchArguments* arguments,
                                      std::vector<std::string>* warnings);

// Adds the settings that aren't options to a plan.
void FinishSlurm(const SlurmShare& share, LaunchPlan* plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_SLURM_DEFAULTS_H_
