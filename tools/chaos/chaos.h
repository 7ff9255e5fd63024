#ifndef DDPRUN_TOOLS_CHAOS_CHAOS_H_
#define DDPRUN_TOOLS_CHAOS_CHAOS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/core/launch_plan.h"
#include "tools/chaos/core/chaos_plan.h"

namespace ddprun::launcher {

// One run of `ddprun chaos`, checked and complete.
struct ChaosRun {
  std::string plan_name;  // of the file, for people
  ChaosPlan plan;
  std::string report_file;       // path of the report as JSON; "" = none
  std::vector<std::string> job;  // the arguments of an ordinary ddprun
  LaunchPlan launch;             // their plan
};

// Checks that this machine can inject the plan's faults.
// Errors: FAILED_PRECONDITION with what is missing.
absl::Status CheckChaos(const ChaosPlan& plan);

// Runs the job as a child, injects the faults, prints the report on stderr. The agent is the
// unmodified product: its event log and its workers' pages are the only sources of facts. Returns
// the exit status: the agent's, or kExitExpectationMissed; 0 if the plan killed the agent for good.
// Requires: the process has one thread.
int RunChaos(const ChaosRun& run);

// Makes the report from event logs, without a run. Lines of several machines are ordered by their
// wall clocks. Returns 0, kExitExpectationMissed, or 1 with one line on stderr: a file can't be
// read or written.
int ReportFromLogs(const ChaosRun& run, const std::vector<std::string>& logs);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CHAOS_CHAOS_H_
