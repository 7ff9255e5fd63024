#include "tools/chaos/chaos.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/event_loop.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "launcher/core/exit_status.h"
#include "launcher/os/folders.h"
#include "tools/chaos/chaos_runner.h"
#include "tools/chaos/core/chaos_cost.h"
#include "tools/chaos/core/chaos_text.h"
#include "tools/chaos/network_fault.h"
#include "tools/chaos/report_json.h"
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

}  // namespace ddprun::launcher
