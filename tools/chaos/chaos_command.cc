#include "tools/chaos/chaos_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/errno_status.h"
#include "base/event_loop.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/core/exit_status.h"
#include "launcher/options/argument.h"
#include "launcher/options/option_set.h"
#include "launcher/os/files.h"
#include "tools/chaos/chaos_plan_file.h"
#include "tools/chaos/chaos_runner.h"
#include "tools/chaos/core/chaos_cost.h"
#include "tools/chaos/core/chaos_text.h"
#include "tools/chaos/network_fault.h"
#include "tools/chaos/timeline_reader.h"

namespace ddprun::launcher {
namespace {

// The temporary folder of an event log, if the user gave none; removed with this object.
class TemporaryFolder {
 public:
  TemporaryFolder() = default;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  absl::StatusOr<std::string> Make() {
    absl::Status first_error;
    for (const std::string& where : TemporaryFolders()) {
      std::string path = where + "/ddprun_chaos_XXXXXX";
      if (mkdtemp(path.data()) != nullptr) return path_ = path;
      first_error.Update(ErrnoStatus(errno, absl::StrCat("mkdtemp ", path)));
    }
    return first_error;
  }

 private:
  std::string path_;
};

absl::Status WriteReport(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("write the report '", path, "'"));
}

// Shows and writes the report. Returns the exit status for a job that ended with `status`.
int Conclude(const ChaosRun& run, const std::vector<TimelineLine>& lines,
             const std::vector<size_t>& never, int status) {
  std::vector<size_t> numbers;
  numbers.reserve(never.size());
  for (const size_t index : never) numbers.push_back(index + 1);
  const ChaosReport report = WorkOutCosts(lines, run.plan.expect, numbers);
  std::vector<size_t> not_here;
  for (size_t i = 0; i < run.plan.faults.size(); ++i) {
    const bool injected = std::any_of(report.faults.begin(), report.faults.end(),
                                      [i](const FaultCost& cost) { return cost.fault == i + 1; });
    if (!injected) not_here.push_back(i);
  }
  std::fputs(ChaosText(report, run.plan, run.plan_name, not_here).c_str(), stderr);
  if (!run.report_file.empty()) {
    const absl::Status written =
        WriteReport(run.report_file, ChaosJson(report, run.plan, not_here));
    if (!written.ok()) {
      Notify(absl::StrCat("error: ", written.message()));
      if (status == 0) return 1;
    }
  }
  return status == 0 && !report.kept() ? kExitExpectationMissed : status;
}

absl::StatusOr<std::string> ReadLog(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) return ErrnoStatus(errno, absl::StrCat("read '", path, "'"));
  return text;
}

std::vector<TimelineLine> LinesOf(const std::string& text, LineClock clock) {
  std::vector<TimelineLine> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    auto line = ParseTimelineLine(absl::string_view(text).substr(begin, end - begin), clock);
    if (line.has_value()) lines.push_back(*std::move(line));
    begin = end + 1;
  }
  return lines;
}

int Fail(const absl::Status& status) {
  Notify(absl::StrCat("error: ", status.message()));
  return 1;
}

}  // namespace

absl::Status CheckChaos(const ChaosPlan& plan) {
  const auto network = std::find_if(plan.faults.begin(), plan.faults.end(),
                                    [](const FaultPlan& fault) { return HitsNetwork(fault.kind); });
  if (network == plan.faults.end()) return absl::OkStatus();
  absl::Status can = CheckNetworkFaults();
  if (can.ok()) return can;
  return absl::FailedPreconditionError(absl::StrCat("line ", network->line, " of the plan, ",
                                                    FaultName(network->kind), ": ", can.message()));
}

absl::Status CheckVictims(const ChaosPlan& plan, uint32_t nodes_max) {
  for (const FaultPlan& fault : plan.faults) {
    const uint32_t rank = fault.victim.group_rank.value_or(0);
    if (rank < nodes_max) continue;
    return PlanError(absl::StrCat("line ", fault.line, " of the plan, ", FaultName(fault.kind),
                                  ": the job has no node ", rank,
                                  "; with its --nnodes they are 0 to ", nodes_max - 1));
  }
  return absl::OkStatus();
}

int RunChaos(const ChaosRun& run) {
  if (const absl::Status can = CheckChaos(run.plan); !can.ok()) return Fail(can);
  TemporaryFolder folder;
  std::string log = run.launch.event_log;
  if (log.empty()) {
    const absl::StatusOr<std::string> path = folder.Make();
    if (!path.ok()) return Fail(path.status());
    log = absl::StrCat(*path, "/events.jsonl");
  }
  const absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  if (!loop.ok()) return Fail(loop.status());
  ChaosRunner runner(loop->get(), &run, log);
  if (const absl::Status started = runner.Start(); !started.ok()) return Fail(started);
  (*loop)->Run();
  return Conclude(run, runner.lines(), runner.NeverInjected(), runner.status());
}

int ReportFromLogs(const ChaosRun& run, const std::vector<std::string>& logs) {
  std::string text;
  for (const std::string& path : logs) {
    const absl::StatusOr<std::string> read = ReadLog(path);
    if (!read.ok()) return Fail(read.status());
    absl::StrAppend(&text, *read, "\n");
  }
  std::vector<TimelineLine> lines = LinesOf(text, LineClock::kMonotonic);
  std::set<std::string> boots;
  std::set<size_t> injected;
  for (const TimelineLine& line : lines) {
    if (line.event == "chaos_start") boots.insert(line.Field("boot"));
    if (line.event == "fault") injected.insert(line.Number("fault").value_or(0));
  }
  if (boots.empty()) {
    return Fail(absl::FailedPreconditionError(
        "there is no line of ddprun chaos in these logs; give those of the nodes that it ran on"));
  }
  if (boots.size() > 1) lines = LinesOf(text, LineClock::kWall);
  std::vector<size_t> never;
  for (size_t i = 0; i < run.plan.faults.size(); ++i) {
    if (!injected.contains(i + 1)) never.push_back(i);
  }
  return Conclude(run, lines, never, 0);
}

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

namespace {

using Json = nlohmann::ordered_json;

Json Milliseconds(const std::optional<absl::Duration>& time) {
  if (!time.has_value()) return nullptr;
  return absl::ToDoubleMilliseconds(*time);
}

Json Count(const std::optional<uint64_t>& number) {
  if (!number.has_value()) return nullptr;
  return *number;
}

Json FaultJson(const FaultCost& cost, Instant began) {
  return {{"fault", cost.fault},
          {"occurrence", cost.occurrence},
          {"kind", cost.kind},
          {"victim", cost.victim},
          {"node", cost.node},
          {"generation", cost.generation},
          {"after_s", absl::ToDoubleSeconds(cost.at - began)},
          {"outcome", cost.outcome},
          {"noticed_ms", Milliseconds(cost.noticed)},
          {"released_ms", Milliseconds(cost.released)},
          {"resumed_ms", Milliseconds(cost.resumed)},
          {"training_ms", Milliseconds(cost.training)},
          {"over_ms", Milliseconds(cost.over)},
          {"rejoined_ms", Milliseconds(cost.rejoined)},
          {"step_before", Count(cost.step_before)},
          {"step_after", Count(cost.step_after)},
          {"steps_lost", Count(cost.steps_lost)},
          {"restarts", Count(cost.restarts)},
          {"rule", cost.rule},
          {"missed", cost.missed}};
}

}  // namespace

std::string ChaosJson(const ChaosReport& report, const ChaosPlan& plan,
                      const std::vector<size_t>& not_here) {
  Json faults = Json::array();
  for (const FaultCost& cost : report.faults) faults.push_back(FaultJson(cost, report.began));
  Json missing = Json::array();
  for (const size_t index : not_here) {
    missing.push_back({{"fault", index + 1},
                       {"line", plan.faults[index].line},
                       {"text", DescribeFault(plan.faults[index])}});
  }
  Json others = Json::array();
  for (const OtherEnd& other : report.others) {
    others.push_back({{"generation", other.generation},
                      {"after_s", absl::ToDoubleSeconds(other.at - report.began)},
                      {"reason", other.reason},
                      {"rule", other.rule}});
  }
  const Json json = {{"seed", plan.seed},
                     {"faults", std::move(faults)},
                     {"not_injected", std::move(missing)},
                     {"beside_the_plan", std::move(others)},
                     {"outcome", report.outcome},
                     {"reason", report.reason},
                     {"rule", report.rule},
                     {"restarts", report.restarts},
                     {"judged", report.judged},
                     {"kept", report.kept()},
                     {"missed", report.missed}};
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

}  // namespace ddprun::launcher
