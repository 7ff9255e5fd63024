#ifndef DDPRUN_TOOLS_PREFLIGHT_TEST_COMMAND_H_
#define DDPRUN_TOOLS_PREFLIGHT_TEST_COMMAND_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/argument.h"
#include "launcher/options/host.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

// `ddprun test` and --preflight: a job's workers are this program first. See docs/PREFLIGHT.md.

// The variable with the path of the file for a worker's findings. An empty file = no finding that
// matters, else a text for the user. Set by the program that runs the agent.
inline constexpr char kPreflightResult[] = "DDPRUN_PREFLIGHT_RESULT";

// The options that `ddprun test` has beside those of a run.
struct TestArguments {
  bool json = false;
  bool network_only = false;
};
void DefineTestOptions(TestArguments* target, OptionSet* options);
// The beginning of `ddprun test --help`.
std::string TestIntroduction();

// Changes a run's arguments into the test's: other workers, no restarts, output on the console.
void MakeTestJob(const TestArguments& test, const EnvironmentLookup& environment, const Host& host,
                 LaunchArguments* launch);
// Whether --rdzv_conf says how long nodes wait for each other.
bool GivesJoinTimeout(const std::string& rdzv_conf);
// Completes the plan of a test. `own_times`: GivesJoinTimeout().
void FinishTestPlan(bool own_times, LaunchPlan* plan);
// --preflight: before the first start each worker of the plan takes part in the test of the
// network.
void AddPreflight(LaunchPlan* plan);

// A worker of such a job.
struct PreflightWorker {
  bool test = false;  // of ddprun test
  bool json = false;
  bool network_only = false;
  std::string python;                // of ddprun test; "" = none
  std::vector<std::string> command;  // of --preflight: the command to execute afterwards
  bool first_start = true;           // the job has started no worker before
  // torchrun's variables.
  uint32_t local_rank = 0;
  uint32_t node = 0;
  uint32_t nodes = 1;
  std::string master_addr;
  uint16_t master_port = 0;
  std::string result_file;        // "" = none
  uint32_t expected = 0;          // nodes that should come; 0 = not known
  std::optional<uint32_t> claim;  // --node_rank
};
// Errors: usage, plan — it was not started by ddprun.
absl::StatusOr<OptionsOrHelp<PreflightWorker>> ParsePreflightWorker(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_TEST_COMMAND_H_
