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

// In the scripts of `ddprun slurm`: after how many runs without progress a job isn't requeued.
inline constexpr char kGiveUpVariable[] = "DDPRUN_SLURM_GIVE_UP_AFTER";

// What Slurm made of a launch.
struct SlurmShare {
  // The step starts several tasks on this node, of which the first launches for all.
  // The name of the abstract unix socket that it holds as long as it lives, and whether this is one
  // of the others, which do nothing but wait for its end. "": each task is for itself.
  std::string node_socket;
  bool waits = false;
  // With DDPRUN_SLURM_REQUEUE=1, on all nodes but the first: the job that is requeued when the
  // first one is lost; "" = none.
  std::string requeue_job;
  RequeuePlan requeues;  // with kGiveUpVariable, on the first node
  bool found = false;    // this is a step of Slurm, or a batch script of one node
  std::string told;      // one line for the user: what was found; "" = nothing
  // As EndpointPlan::alone_hint, where the other nodes are those of the step.
  std::string alone_hint;
  // As EndpointPlan::name_hint, and ServiceTimeouts::unknown_name with it.
  std::string name_hint;
  absl::Duration unknown_name = absl::InfiniteDuration();
  // As JobSpec::agents_started.
  uint32_t agents_started = 0;
};

// Fills in what neither the command line nor a variable nor a file says from Slurm's variables
// (docs/SLURM.md); where there are none, nothing. The source of what it fills in is the variable.
// Errors: plan errors (errors.h).
absl::StatusOr<SlurmShare> ApplySlurm(const EnvironmentLookup& environment, const Host& host,
                                      LaunchArguments* arguments,
                                      std::vector<std::string>* warnings);

// Takes into a plan what is no option's.
void FinishSlurm(const SlurmShare& share, LaunchPlan* plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_SLURM_DEFAULTS_H_
