#ifndef DDPRUN_TOOLS_PREFLIGHT_PREFLIGHT_WORKER_H_
#define DDPRUN_TOOLS_PREFLIGHT_PREFLIGHT_WORKER_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "launcher/core/launch_plan.h"
#include "tools/preflight/test_command.h"

namespace ddprun::launcher {

// A worker of `ddprun test` or --preflight: takes part in the check of the network, then executes
// its command. Returns the exit status if it doesn't. A finding that prevents the run is left in a
// file for the agent, which reports it to the service: the job fails at once, without restarts
// (R7).
int RunPreflightWorker(const PreflightWorker& worker);

// The findings of this node's worker, for the process that runs the agent. Threads: any.
class PreflightResult {
 public:
  // For plans with `preflight`: makes an empty memory file and passes its path to the workers in a
  // variable; for --preflight also to the agent, in the plan. Errors: errno.
  static absl::StatusOr<PreflightResult> Prepare(LaunchPlan* plan);

  // The exit status of the whole run. For ddprun test: 1 if the agent's is 0 but a worker has left
  // a text, which is printed. For --preflight the agent has printed the text and failed already.
  int StatusAfter(int agent_status) const;

 private:
  Fd file_;  // invalid = no test
  bool test_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_PREFLIGHT_WORKER_H_
