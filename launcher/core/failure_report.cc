#include "launcher/core/failure_report.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/signal_name.h"
#include "launcher/core/text.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Verdict;
using rendezvous::WorkerFailure;

constexpr size_t kRuleWidth = 60;  // torchrun's
constexpr size_t kTextWidth = 80;
constexpr size_t kOthersShown = 10;
constexpr size_t kLineBytesMax = 300;  // of a worker's text inside a sentence

std::string Rule(char c) { return std::string(kRuleWidth, c) + "\n"; }

// A text of somebody else's as one bounded line.
std::string OneLine(absl::string_view text) {
  std::string line =
      absl::StrReplaceAll(Printable(absl::StripAsciiWhitespace(text)), {{"\n", " "}, {"\t", " "}});
  if (line.size() > kLineBytesMax) line = absl::StrCat(line.substr(0, kLineBytesMax), "…");
  return line;
}

// What sends this signal when we did not; "" = nothing that is usual.
absl::string_view SignalHint(int signal) {
  switch (signal) {
    case SIGKILL:
      return "ddprun did not send it. Most often the kernel's out-of-memory killer did (look for "
             "the pid in `dmesg`); else a scheduler or a person.";
    case SIGTERM:
      return "ddprun did not send it: a scheduler or a person did.";
    case SIGBUS:
      return "Most often shared memory is full: see `df /dev/shm`.";
    default:
      return "";
  }
}

std::string DescribeSignal(const WorkerFailure& failure) {
  const char* words = sigdescr_np(failure.signal);
  const bool says_more = words != nullptr && failure.signal != SIGKILL && failure.signal != SIGTERM;
  return absl::StrCat("killed by ", SignalName(failure.signal), " (", failure.signal,
                      says_more ? absl::StrCat(", ", absl::AsciiStrToLower(words)) : "", ")",
                      failure.core_dumped ? ", core dumped" : "");
}

std::string DescribeExit(int code) {
  // Shells report a child that was killed by signal n as 128 + n.
  const int signal = code - 128;
  const bool is_shells = signal > 0 && sigabbrev_np(signal) != nullptr;
  return absl::StrCat("exited with code ", code,
                      is_shells ? absl::StrCat(" (128 + ", signal, ": a child of it was killed by ",
                                               SignalName(signal), ")")
                                : "");
}

// "  name      : value", with the lines after the first below the value.
void AddField(absl::string_view name, absl::string_view value, std::string* report) {
  const std::string indent(14, ' ');
  absl::StrAppend(report, "  ", name, std::string(10 - std::min<size_t>(10, name.size()), ' '),
                  ": ");
  absl::StrAppend(report, absl::StrJoin(WrapText(value, kTextWidth - indent.size()), "\n" + indent),
                  "\n");
}

// Lines of the worker's own, as they are, indented.
void AddLines(absl::string_view text, std::string* report) {
  const std::string printable = Printable(text);
  for (absl::string_view line :
       absl::StrSplit(absl::StripTrailingAsciiWhitespace(printable), '\n')) {
    absl::StrAppend(report, line.empty() ? "" : "    ", line, "\n");
  }
}

std::string TimeText(const WorkerFailure& failure, absl::TimeZone zone) {
  if (failure.wall_time_ms == 0) return "<N/A>";
  const uint64_t bound = std::numeric_limits<int64_t>::max();
  const auto wall_ms = static_cast<int64_t>(std::min(failure.wall_time_ms, bound));
  std::string text = absl::FormatTime("%Y-%m-%d_%H:%M:%S", absl::FromUnixMillis(wall_ms), zone);
  if (failure.after_first_ms > 0) {
    absl::StrAppend(&text, " (", failure.after_first_ms, " ms after the first of this node)");
  }
  return text;
}

std::string HostText(const WorkerFailure& failure) {
  const std::string host = OneLine(failure.hostname);
  const std::string node = OneLine(failure.node_id.value());
  return node.empty() || node == host ? host : absl::StrCat(host, " (node: ", node, ")");
}

std::string ExitCodeText(const WorkerFailure& failure) {
  if (!failure.start_error.empty()) return "<N/A> (never started)";
  return absl::StrCat(failure.signal != 0 ? -failure.signal : failure.exit_code,
                      " (pid: ", failure.pid, ")");
}

// The fields that every failure has.
void AddSummary(size_t index, const WorkerFailure& failure, const ReportOptions& options,
                std::string* report) {
  absl::StrAppend(report, "[", index, "]:\n");
  AddField("time", TimeText(failure, options.time_zone), report);
  AddField("host", HostText(failure), report);
  AddField("rank", absl::StrCat(failure.rank, " (local_rank: ", failure.local_rank, ")"), report);
  AddField("exitcode", ExitCodeText(failure), report);
  std::string cause = DescribeFailure(failure);
  if (!failure.message.empty()) absl::StrAppend(&cause, ": ", OneLine(failure.message));
  AddField("cause", cause, report);
}

// What helps to find out why: the stack, else the end of stderr, else where stderr went.
void AddDetails(const WorkerFailure& failure, const ReportOptions& options, std::string* report) {
  if (const absl::string_view hint = SignalHint(failure.signal); !hint.empty()) {
    AddField("hint", hint, report);
  }
  if (!failure.error_file.empty()) AddField("error_file", OneLine(failure.error_file), report);
  if (!failure.traceback.empty()) {
    AddField("traceback", "(from the error file)", report);
    AddLines(failure.traceback, report);
    return;
  }
  if (!failure.stderr_tail.empty()) {
    AddField("stderr", "(last lines)", report);
    AddLines(failure.stderr_tail, report);
  } else if (options.stderr_captured) {
    AddField("stderr", "nothing was written", report);
  } else if (failure.start_error.empty()) {
    AddField("stderr",
             absl::StrCat("not captured: it is in the output of ddprun on ",
                          OneLine(failure.hostname), ". With --tee 2 it is kept and shown here."),
             report);
  }
}

// The failures from `begin` to `end`, the first ten of them.
void AddSummaries(const Verdict& verdict, size_t begin, size_t end, const ReportOptions& options,
                  std::string* report) {
  const size_t shown_end = std::min(end, begin + kOthersShown);
  for (size_t i = begin; i < shown_end; ++i) AddSummary(i, verdict.failures[i], options, report);
  if (shown_end < end) absl::StrAppend(report, "… and ", end - shown_end, " more\n");
}

void AddFailures(const Verdict& verdict, const ReportOptions& options, std::string* report) {
  const size_t count = verdict.failures.size();
  // A report of a service that names no first cause still begins with its first failure.
  const size_t causes = std::clamp<size_t>(verdict.first_causes, 1, count);
  absl::StrAppend(report, Rule('-'),
                  causes == 1 ? "Root Cause (first observed failure over all nodes):\n"
                              : absl::StrCat("Root Cause (a tie: ", causes,
                                             " failures, none of them known to be the first):\n"));
  AddSummary(0, verdict.failures.front(), options, report);
  AddDetails(verdict.failures.front(), options, report);
  AddSummaries(verdict, 1, causes, options, report);
  absl::StrAppend(report, Rule('-'), "Other Failures:\n");
  if (causes == count) absl::StrAppend(report, "  <NO_OTHER_FAILURES>\n");
  AddSummaries(verdict, causes, count, options, report);
}

}  // namespace

std::string DescribeFailure(const WorkerFailure& failure) {
  if (!failure.start_error.empty()) {
    return absl::StrCat("could not be started: ", OneLine(failure.start_error));
  }
  return failure.signal != 0 ? DescribeSignal(failure) : DescribeExit(failure.exit_code);
}

std::string FailureReport(const Verdict& verdict, const ReportOptions& options) {
  if (verdict.outcome != rendezvous::Outcome::kFailed) return "";
  std::string report = Rule('=');
  absl::StrAppend(&report, OneLine(options.entry_point), " FAILED\n");
  if (!verdict.reason.empty()) {
    absl::StrAppend(&report, absl::StrJoin(WrapText(OneLine(verdict.reason), kTextWidth), "\n"),
                    "\n");
  }
  if (!verdict.failures.empty()) AddFailures(verdict, options, &report);
  absl::StrAppend(&report, Rule('='));
  return report;
}

}  // namespace ddprun::launcher
