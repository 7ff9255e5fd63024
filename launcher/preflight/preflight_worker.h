#ifndef DDPRUN_LAUNCHER_PREFLIGHT_PREFLIGHT_WORKER_H_
#define DDPRUN_LAUNCHER_PREFLIGHT_PREFLIGHT_WORKER_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "launcher/core/launch_plan.h"
#include "launcher/preflight/test_command.h"

namespace ddprun::launcher {

// A worker of `ddprun test` or --preflight: takes part in the check of the network, then becomes
// what it is for. Returns the exit status where it doesn't. What prevents a run it leaves for its
// agent, which tells the service: the job has failed, at once and without restarts (R7).
int RunPreflightWorker(const PreflightWorker& worker);

// What this node's worker found, for the process that runs the agent. Threads: any.
class PreflightResult {
 public:
  // For plans with `preflight`: makes an empty file without a name, and tells the workers of it by
  // a variable; before a run the plan, too. Errors: errno.
  static absl::StatusOr<PreflightResult> Prepare(LaunchPlan* plan);

  // The exit status of the whole run. Of ddprun test: 1 where the agent's is 0, but a worker has
  // left a text, which is told to the user. Before a run the agent has told all, and failed.
  int StatusAfter(int agent_status) const;

 private:
  Fd file_;  // not valid: nobody tests
  bool test_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PREFLIGHT_PREFLIGHT_WORKER_H_
