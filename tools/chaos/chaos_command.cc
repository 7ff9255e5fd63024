#include "tools/chaos/chaos_command.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/errors.h"
#include "launcher/options/option_set.h"
#include "tools/chaos/chaos_plan_file.h"

namespace ddprun::launcher {
namespace {

constexpr char kChaosIntroduction[] =
    R"(usage: ddprun chaos [options] PLAN [options of ddprun] script [arguments]

Runs the job that `ddprun [options of ddprun] script [arguments]` runs, injects
the faults of PLAN while it trains, and reports what each of them cost: when it
was noticed, when all were released, when training went on, how many steps were
lost. On several nodes start each with this command; a fault is injected by the
node that it names. What a plan may say: docs/CHAOS.md.

Example of a plan:
  faults:
    - fault: worker_killed    # or worker_stopped, agent_killed, agent_frozen,
      worker: random          # service_killed, service_stalled, network_cut,
      step: 100               # packet_loss
  expect: {noticed: 200ms, resumed: 5s}

Exit status: the job's; 94 when it ended with 0 and an expectation was missed.)";

constexpr size_t kPlanBytesMax = 65536;  // what Host::ReadFile() gives
constexpr size_t kPlanPathShown = 80;

std::optional<std::string> NoVariables(const std::string&) { return std::nullopt; }

absl::StatusOr<ChaosPlan> ReadPlan(const std::string& path, const Host& host) {
  const absl::StatusOr<std::string> text = host.ReadFile(path);
  if (!text.ok()) {
    return PlanError(absl::StrCat("can't read the plan ", text.status().message()));
  }
  if (text->size() >= kPlanBytesMax) {
    return PlanError(absl::StrCat("the plan ", Quoted(path), " is larger than 64 KiB"));
  }
  return ReadChaosPlan(Shown(path, kPlanPathShown), *text);
}

}  // namespace

absl::StatusOr<OptionsOrHelp<ChaosOptions>> ParseChaosOptions(
    const std::vector<std::string>& arguments, const Host& host) {
  OptionsOrHelp<ChaosOptions> result;
  OptionSet options(kChaosIntroduction);
  Argument report;
  Argument logs;
  options.Group("Options, before the plan");
  options.AddValue(&report, {.names = "--chaos-report",
                             .placeholder = "FILE",
                             .help = "Write the report to FILE too, as JSON.",
                             .environment = ""});
  options.AddFlag(&result.options.check,
                  {.names = "--check",
                   .help = "Check the plan, the job's options, and whether this node can inject "
                           "what the plan asks for; run nothing.",
                   .environment = ""});
  options.AddValue(&logs, {.names = "--from-logs",
                           .placeholder = "FILE,FILE",
                           .help = "Run nothing: work out the report for the whole job from the "
                                   "event logs (--event_log) of its nodes.",
                           .environment = ""});
  DDPRUN_ASSIGN_OR_RETURN(ParsedArguments parsed, options.Parse(arguments, NoVariables));
  if (parsed.help) {
    result.help = options.Help();
    return result;
  }
  if (parsed.positionals.empty()) {
    return UsageError("chaos needs a plan: ddprun chaos PLAN [options of ddprun] script");
  }
  result.options.report_file = report.text;
  if (logs.given()) {
    result.options.from_logs = absl::StrSplit(logs.text, ',', absl::SkipEmpty());
    if (result.options.from_logs.empty()) return UsageError("--from_logs: give at least one file");
  }
  result.options.plan_file = parsed.positionals.front();
  result.options.job.assign(parsed.positionals.begin() + 1, parsed.positionals.end());
  if (logs.given() && !result.options.job.empty()) {
    return UsageError(absl::StrCat("--from_logs runs no job; drop ",
                                   Quoted(result.options.job.front()), " and what comes after it"));
  }
  DDPRUN_ASSIGN_OR_RETURN(result.options.plan, ReadPlan(result.options.plan_file, host));
  return result;
}

}  // namespace ddprun::launcher
