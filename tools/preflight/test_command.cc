#include "tools/preflight/test_command.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"
#include "launcher/options/values.h"
#include "launcher/plan/worker_command.h"

namespace ddprun::launcher {
namespace {

constexpr char kWorkerWord[] = "preflight-worker";
// The program that is running, wherever it is.
constexpr char kThisProgram[] = "/proc/self/exe";
// How long `ddprun test` waits for the other nodes, because a person waits at its terminal.
constexpr absl::Duration kTestJoin = absl::Seconds(60);

// A variable that every worker has.
template <typename Number>
absl::Status ReadOwn(const EnvironmentLookup& environment, const char* name, Number* number) {
  uint64_t value = 0;
  if (!absl::SimpleAtoi(environment(name).value_or(""), &value) ||
      value > std::numeric_limits<Number>::max()) {
    return PlanError(absl::StrCat(kWorkerWord,
                                  " is for the workers of ddprun test and --preflight, which set ",
                                  name, " and others"));
  }
  *number = static_cast<Number>(value);
  return absl::OkStatus();
}

}  // namespace

std::string TestIntroduction() {
  return R"(usage: ddprun test [options] [script [arguments of the script]]

Starts a small job with the options of the real one, and tests what a training
run needs: that all nodes find each other; that each reaches every other one, in
both directions, without loss and as fast as the rest; that no node's CPUs are
slower; then, where Python has torch, that DDP trains, alone and on all ranks, and
how fast all-reduce is. Names the node or the link, with its direction, that is
worse than the others; when all are equally slow, none. Takes about 10 seconds
once all nodes have joined; those that don't within 60 s (--rdzv_conf
join_timeout=SECONDS) are named, and the others are tested without them. No
script is run. Beside its own options it takes all of a run (ddprun --help-all).

Exit status: 0 all is well; 1 something was found, or failed; 2 wrong options.

Examples:
  ddprun test --standalone --nproc_per_node gpu
  ddprun test --nnodes 2 --node_rank 0 --master_addr host0    # 1 on the other
  ddprun test --nnodes 8 --rdzv_endpoint host0                # on all eight
  srun ddprun test --nnodes 8 --rdzv_endpoint host0 --json > report.json
  ddprun test --network_only --nnodes 8 --rdzv_endpoint host0 # without torch

ddprun --preflight does the network's part before a run's first start.
docs/PREFLIGHT.md explains what is measured, and lists all findings.)";
}

void DefineTestOptions(TestArguments* target, OptionSet* options) {
  options->Group("Test");
  options->AddFlag(&target->json,
                   {.names = "--json",
                    .help = "One JSON object on stdout of the first node, in place of the report.",
                    .environment = ""});
  options->AddFlag(&target->network_only, {.names = "--network-only",
                                           .help = "Leave out what needs Python and torch.",
                                           .environment = ""});
}

void MakeTestJob(const TestArguments& test, const EnvironmentLookup& environment, const Host& host,
                 LaunchArguments* launch) {
  const LaunchArguments fresh;
  launch->command = {kThisProgram, kWorkerWord, "--test"};
  if (test.json) launch->command.emplace_back("--json");
  if (test.network_only) launch->command.emplace_back("--network_only");
  if (const auto python = FindPython(environment, host); python.ok() && !test.network_only) {
    launch->command.push_back(
        absl::StrCat("--python=", host.FindProgram(*python).value_or(*python)));
  }
  launch->no_python = true;
  launch->module = launch->run_path = launch->preflight = false;
  launch->use_env = true;
  launch->max_restarts = fresh.max_restarts;
  launch->hang_detection = {.text = "off"};
  launch->redirects = fresh.redirects;
  launch->tee = fresh.tee;
  launch->log_dir = fresh.log_dir;
  launch->prefix_output = launch->collapse_output = false;
  for (Argument* argument : {&launch->local_ranks_filter, &launch->duplicate_stdout_filters,
                             &launch->duplicate_stderr_filters, &launch->logs_specs,
                             &launch->report_file, &launch->hang_timeout, &launch->preempt_after}) {
    *argument = {};
  }
}

bool GivesJoinTimeout(const std::string& rdzv_conf) {
  for (const absl::string_view each : absl::StrSplit(rdzv_conf, ',')) {
    const absl::string_view key = absl::StripAsciiWhitespace(each.substr(0, each.find('=')));
    if (key == "join_timeout" || key == "timeout") return true;
  }
  return false;
}

void FinishTestPlan(bool own_times, LaunchPlan* plan) {
  plan->preflight = Preflight::kTest;
  plan->entry_point = "ddprun test";
  plan->requeue_job.clear();
  if (!own_times) plan->job.join_timeout = std::min(plan->job.join_timeout, kTestJoin);
  if (plan->job.nodes_min == plan->job.nodes_max && plan->job.nodes_max > 1) {
    // The nodes that have come by then are tested, and the others are reported as missing.
    plan->job.nodes_min = 1;
    plan->job.last_call_timeout = plan->job.join_timeout;
    plan->argv.push_back(absl::StrCat("--expected=", plan->job.nodes_max));
    if (plan->node_rank.has_value()) {
      plan->argv.push_back(absl::StrCat("--claim=", *plan->node_rank));
    }
  }
  plan->job.description = absl::StrCat("ddprun test, ", CountText(plan->job.nodes_max, "node"));
}

void AddPreflight(LaunchPlan* plan) {
  plan->preflight = Preflight::kBeforeRun;
  std::vector<std::string> argv = {kThisProgram, kWorkerWord, "--"};
  argv.insert(argv.end(), plan->argv.begin(), plan->argv.end());
  plan->argv = std::move(argv);
  // Nodes that don't take part would be missed: all have it, or none.
  absl::StrAppend(&plan->job.fingerprint, "-preflight");
  absl::StrAppend(&plan->job.description, " with --preflight");
}

absl::StatusOr<OptionsOrHelp<PreflightWorker>> ParsePreflightWorker(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment) {
  OptionsOrHelp<PreflightWorker> result;
  PreflightWorker& worker = result.options;
  OptionSet options("usage: for ddprun test and --preflight");
  Argument python;
  options.Group("");
  options.AddFlag(&worker.test, {.names = "--test", .help = "", .environment = ""});
  options.AddFlag(&worker.json, {.names = "--json", .help = "", .environment = ""});
  options.AddFlag(&worker.network_only, {.names = "--network-only", .help = "", .environment = ""});
  options.AddValue(&python,
                   {.names = "--python", .placeholder = "PATH", .help = "", .environment = ""});
  Argument expected;
  Argument claim;
  options.AddValue(&expected,
                   {.names = "--expected", .placeholder = "N", .help = "", .environment = ""});
  options.AddValue(&claim, {.names = "--claim", .placeholder = "N", .help = "", .environment = ""});
  DDPRUN_ASSIGN_OR_RETURN(ParsedArguments parsed, options.Parse(arguments, environment));
  if (parsed.help) {
    result.help = options.Help();
    return result;
  }
  worker.command = std::move(parsed.positionals);
  worker.python = python.text;
  if (expected.given()) {
    DDPRUN_ASSIGN_OR_RETURN(const int64_t count, ParseInteger(expected, 1, UINT32_MAX));
    worker.expected = static_cast<uint32_t>(count);
  }
  if (claim.given()) {
    DDPRUN_ASSIGN_OR_RETURN(const int64_t rank, ParseInteger(claim, 0, UINT32_MAX));
    worker.claim = static_cast<uint32_t>(rank);
  }
  if (!worker.test && worker.command.empty()) {
    return UsageError(absl::StrCat(kWorkerWord, " needs a command to become"));
  }
  DDPRUN_RETURN_IF_ERROR(ReadOwn(environment, "LOCAL_RANK", &worker.local_rank));
  DDPRUN_RETURN_IF_ERROR(ReadOwn(environment, "GROUP_RANK", &worker.node));
  DDPRUN_RETURN_IF_ERROR(ReadOwn(environment, "GROUP_WORLD_SIZE", &worker.nodes));
  DDPRUN_RETURN_IF_ERROR(ReadOwn(environment, "MASTER_PORT", &worker.master_port));
  worker.master_addr = environment("MASTER_ADDR").value_or("");
  worker.result_file = environment(kPreflightResult).value_or("");
  worker.first_start = environment("DDPRUN_GENERATION").value_or("1") == "1" &&
                       environment("TORCHELASTIC_RESTART_COUNT").value_or("0") == "0";
  return result;
}

}  // namespace ddprun::launcher
