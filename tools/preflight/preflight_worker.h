#ifndef DDPRUN_TOOLS_PREFLIGHT_PREFLIGHT_WORKER_H_
#define DDPRUN_TOOLS_PREFLIGHT_PREFLIGHT_WORKER_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "launcher/core/launch_plan.h"
#include "tools/preflight/network_check.h"
#include "tools/preflight/test_command.h"

namespace ddprun::launcher {

// torch_test.py, which each rank of `ddprun test` runs with Python's -c.
extern const char kTorchTest[];

// Whether all nodes have Python with torch: the others would wait for a node without it until a
// time-out. Each node's first worker asks `python` ("" = none) without importing torch; the other
// workers only wait. Returns: "" = all have it; else why the test with torch is left out, for
// people. Errors: as CheckNetwork(). Threads: blocks the caller, at most 10 s for Python.
absl::StatusOr<std::string> AgreeOnTorch(const CheckMember& place, bool first_worker,
                                         const std::string& python, Meeting* meeting);

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
