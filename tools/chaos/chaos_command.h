#ifndef DDPRUN_TOOLS_CHAOS_CHAOS_COMMAND_H_
#define DDPRUN_TOOLS_CHAOS_CHAOS_COMMAND_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "tools/chaos/core/chaos_cost.h"
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

// Checks that the job may have the nodes that the plan names by their ranks.
// Errors: plan errors (argument.h) with the line.
absl::Status CheckVictims(const ChaosPlan& plan, uint32_t nodes_max);

// Runs the job as a child, injects the faults, prints the report on stderr. The agent is the
// unmodified product: its event log and its workers' pages are the only sources of facts. Returns
// the exit status: the agent's, or kExitExpectationMissed; 0 if the plan killed the agent for good.
// Requires: the process has one thread.
int RunChaos(const ChaosRun& run);

// Makes the report from event logs, without a run. Lines of several machines are ordered by their
// wall clocks. Returns 0, kExitExpectationMissed, or 1 with one line on stderr: a file can't be
// read or written.
int ReportFromLogs(const ChaosRun& run, const std::vector<std::string>& logs);

// `ddprun chaos`: runs a job with the faults of a plan, and reports what they cost.
struct ChaosOptions {
  std::string plan_file;
  ChaosPlan plan;
  std::string report_file;             // --chaos_report: path of the report as JSON; "" = none
  bool check = false;                  // --check: run nothing
  std::vector<std::string> from_logs;  // --from_logs: make the report from these; run nothing
  std::vector<std::string> job;        // the arguments after the plan: those of an ordinary ddprun
  LaunchPlan launch;                   // their plan; only with a job
};

// Reads `ddprun chaos`'s own options and the plan, but not the arguments after the plan.
// Params: arguments — after the command's own name.
// Errors: usage and plan errors (argument.h), mistakes of the plan with file and line.
absl::StatusOr<OptionsOrHelp<ChaosOptions>> ParseChaosOptions(
    const std::vector<std::string>& arguments, const Host& host);

// The report of --chaos_report, as docs/CHAOS.md lists its fields: one JSON object, indented, with
// a newline at its end. Params as of ChaosText(). Threads: any.
std::string ChaosJson(const ChaosReport& report, const ChaosPlan& plan,
                      const std::vector<size_t>& not_here);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CHAOS_CHAOS_COMMAND_H_
