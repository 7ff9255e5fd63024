#include "launcher/core/failure_report.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Verdict;
using rendezvous::WorkerFailure;

// Whether the worker hung with others and none of them is known to be the cause (R13).
bool IsTiedHang(const WorkerFailure& failure) {
  return failure.hung && absl::StrContains(failure.message, rendezvous::kTiedEvidence);
}

constexpr size_t kRuleWidth = 60;  // torchrun's
constexpr size_t kTextWidth = 80;
constexpr size_t kOthersShown = 10;
constexpr size_t kLineBytesMax = 600;  // of a worker's text inside a sentence
constexpr size_t kNameWidth = 10;      // of a field
constexpr char kTracebackHelp[] = "https://pytorch.org/docs/stable/elastic/errors.html";

std::string Rule(char c) { return std::string(kRuleWidth, c) + "\n"; }

// A text of a worker, as one line.
std::string OneLineOf(absl::string_view text, size_t bytes_max) {
  std::string line =
      absl::StrReplaceAll(Printable(absl::StripAsciiWhitespace(text)), {{"\n", " "}, {"\t", " "}});
  if (line.size() > bytes_max) line = absl::StrCat(line.substr(0, bytes_max), "…");
  return line;
}

std::string OneLine(absl::string_view text) { return OneLineOf(text, kLineBytesMax); }

// The usual sender of this signal if it wasn't ddprun; "" = not known.
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
  absl::StrAppend(report, "  ", name,
                  std::string(kNameWidth - std::min(kNameWidth, name.size()), ' '), ": ");
  absl::StrAppend(report, absl::StrJoin(WrapText(value, kTextWidth - indent.size()), "\n" + indent),
                  "\n");
}

// Indented lines of the worker's output, not wrapped.
void AddLines(absl::string_view text, std::string* report) {
  const std::string printable = Printable(text);
  for (absl::string_view line :
       absl::StrSplit(absl::StripTrailingAsciiWhitespace(printable), '\n')) {
    absl::StrAppend(report, line.empty() ? "" : "    ", line, "\n");
  }
}

// The worker's stack as torchrun shows it: its first line beside the name, the rest below.
void AddTraceback(absl::string_view text, std::string* report) {
  const std::string printable = Printable(text);
  const std::vector<absl::string_view> lines =
      absl::StrSplit(absl::StripTrailingAsciiWhitespace(printable), '\n');
  absl::StrAppend(report, "  traceback : ", lines.front(), "\n");
  for (size_t i = 1; i < lines.size(); ++i) {
    absl::StrAppend(report, lines[i].empty() ? "" : "  ", lines[i], "\n");
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
  const std::string pid = absl::StrCat(" (pid: ", failure.pid, ")");
  if (failure.signal == 0) return absl::StrCat(failure.exit_code, pid);
  return absl::StrCat(-failure.signal, pid, " (", SignalName(failure.signal), ")");
}

// For a failure without an error file: the error in its stderr. Without that, torchrun's text in
// one line, because users search for it.
void AddPlainTraceback(const WorkerFailure& failure, const ReportOptions& options,
                       std::string* report) {
  if (!failure.start_error.empty()) return AddField("traceback", DescribeFailure(failure), report);
  if (failure.signal == 0) {
    const std::string line = ErrorLine(failure.stderr_tail);
    if (!line.empty()) return AddTraceback(OneLine(line), report);
    if (!options.runs_python) return AddTraceback("none: no error was reported", report);
    return AddTraceback(absl::StrCat("To enable traceback see: ", kTracebackHelp), report);
  }
  AddTraceback(absl::StrCat("Signal ", failure.signal, " (", SignalName(failure.signal),
                            ") received by PID ", failure.pid),
               report);
}

// torchrun's fields, in its order, with the worker's own words in one line.
void AddSummary(size_t index, const WorkerFailure& failure, const ReportOptions& options,
                std::string* report) {
  absl::StrAppend(report, "[", index, "]:\n");
  AddField("time", TimeText(failure, options.time_zone), report);
  AddField("host", HostText(failure), report);
  AddField("rank", absl::StrCat(failure.rank, " (local_rank: ", failure.local_rank, ")"), report);
  AddField("exitcode", ExitCodeText(failure), report);
  AddField("error_file", failure.error_file.empty() ? "<N/A>" : OneLine(failure.error_file),
           report);
}

void AddOther(size_t index, const WorkerFailure& failure, const ReportOptions& options,
              std::string* report) {
  AddSummary(index, failure, options, report);
  if (failure.message.empty()) return AddPlainTraceback(failure, options, report);
  AddField("traceback", OneLine(failure.message), report);
}

void AddStopped(size_t index, const WorkerFailure& failure, const ReportOptions& options,
                std::string* report) {
  AddSummary(index, failure, options, report);
  AddField("traceback", "stopped by ddprun after the first failure", report);
}

// "name: text" of a fact; a name is a short word.
void AddFact(absl::string_view fact, std::string* report) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(fact, absl::MaxSplits(": ", 1));
  const bool named = !parts.second.empty() && parts.first.size() <= kNameWidth &&
                     std::all_of(parts.first.begin(), parts.first.end(), absl::ascii_islower);
  AddField(named ? parts.first : "fact", OneLine(named ? parts.second : fact), report);
}

bool HasFact(const WorkerFailure& failure, absl::string_view name) {
  return std::any_of(failure.facts.begin(), failure.facts.end(), [&](const std::string& fact) {
    return absl::StartsWith(fact, absl::StrCat(name, ": "));
  });
}

// The end of stderr. A fact says why there is none, if it could not be kept.
void AddStderr(const WorkerFailure& failure, std::string* report) {
  if (!failure.stderr_tail.empty()) {
    AddField("stderr", "(last lines)", report);
    AddLines(failure.stderr_tail, report);
  } else if (failure.start_error.empty() && !HasFact(failure, "stderr")) {
    AddField("stderr", "nothing was written", report);
  }
}

// The command stays in one line, for those who copy it.
void AddAdvice(const Advice& advice, std::string* report) {
  AddField("advice", OneLineOf(advice.text, std::string::npos), report);
  absl::StrAppend(report, "  next      : ", OneLineOf(advice.next, std::string::npos), "\n");
}

// A root cause, with all that helps to find out why: the stack, else the end of stderr.
void AddCause(size_t index, const WorkerFailure& failure, const ReportOptions& options,
              std::string* report) {
  AddSummary(index, failure, options, report);
  const std::string words = failure.traceback.empty() ? failure.message
                            : failure.hung ? absl::StrCat(failure.message, "\n", failure.traceback)
                                           : failure.traceback;
  if (words.empty()) {
    AddPlainTraceback(failure, options, report);
  } else {
    AddTraceback(words, report);
  }
  if (failure.start_error.empty()) AddField("cause", DescribeFailure(failure), report);
  for (const std::string& fact : failure.facts) AddFact(fact, report);
  const bool explained = failure.signal == SIGKILL && HasFact(failure, "memory");
  const bool explained_by_us = explained || failure.hung;
  if (options.advice.has_value()) {
    AddAdvice(*options.advice, report);
  } else if (const absl::string_view hint = SignalHint(failure.signal);
             !hint.empty() && !explained_by_us) {
    AddField("hint", hint, report);
  }
  if (failure.traceback.empty() && !failure.texts_left_out) AddStderr(failure, report);
}

// With many nodes only one gets the whole verdict (R8). Params: where: which of its outputs has it.
std::string LeftOutText(const Verdict& verdict, absl::string_view what, absl::string_view where) {
  return absl::StrCat(what, " left out in a job of this many nodes",
                      verdict.whole_on.empty()
                          ? ""
                          : absl::StrCat("; ddprun on ", OneLine(verdict.whole_on),
                                         " reports all: see its ", where));
}

// For a first cause whose texts were left out.
void AddLeftOut(const Verdict& verdict, std::string* report) {
  const WorkerFailure& failure = verdict.failures.front();
  if (!failure.texts_left_out) return;
  if (failure.traceback.empty() && !failure.stderr_tail.empty()) {
    AddField("stderr", "(last lines)", report);
    AddLines(failure.stderr_tail, report);
  }
  AddField("cut", LeftOutText(verdict, "some of what it wrote is", "output"), report);
}

// "… and 5 more": failures that aren't listed, and failures that this node didn't get.
void AddMore(const Verdict& verdict, size_t unlisted, size_t left_out, std::string* report) {
  if (unlisted + left_out == 0) return;
  absl::StrAppend(report, "… and ", unlisted + left_out, " more\n");
  if (left_out == 0) return;
  const std::string why =
      LeftOutText(verdict, absl::StrCat(left_out, " of them are"), "--report_file");
  absl::StrAppend(report, "  ", absl::StrJoin(WrapText(why, kTextWidth - 2), "\n  "), "\n");
}

// The failures that aren't causes; the first ten.
void AddOthers(const Verdict& verdict, size_t causes, const ReportOptions& options,
               std::string* report) {
  const size_t count = verdict.failures.size() - causes + options.stopped.size();
  const size_t left_out = verdict.failures_left_out - verdict.causes_left_out;
  absl::StrAppend(report, Rule('-'), "Failures:\n");
  if (count + left_out == 0) absl::StrAppend(report, "  <NO_OTHER_FAILURES>\n");
  for (size_t i = 0; i < std::min(count, kOthersShown); ++i) {
    const size_t index = causes + i;
    if (index < verdict.failures.size()) {
      AddOther(index, verdict.failures[index], options, report);
    } else {
      AddStopped(index, options.stopped[index - verdict.failures.size()], options, report);
    }
  }
  AddMore(verdict, count - std::min(count, kOthersShown), left_out, report);
}

void AddFailures(const Verdict& verdict, const ReportOptions& options, std::string* report) {
  // A report of a service that names no first cause still has its first failure for one.
  const size_t causes = std::clamp<size_t>(verdict.first_causes, 1, verdict.failures.size());
  AddOthers(verdict, causes, options, report);
  const size_t tied = causes + verdict.causes_left_out;
  absl::StrAppend(report, Rule('-'));
  if (IsTiedHang(verdict.failures.front())) {
    absl::StrAppend(report, "Root Cause (not known; one of the workers that hung):\n");
  } else if (tied == 1) {
    absl::StrAppend(report, "Root Cause (first observed failure):\n");
  } else {
    absl::StrAppend(report, "Root Cause (a tie: ", tied,
                    " failures, none of them known to be the first):\n");
  }
  AddCause(0, verdict.failures.front(), options, report);
  AddLeftOut(verdict, report);
  const size_t shown = std::min(causes, 1 + kOthersShown);
  for (size_t i = 1; i < shown; ++i) AddOther(i, verdict.failures[i], options, report);
  AddMore(verdict, causes - shown, verdict.causes_left_out, report);
}

}  // namespace

std::string DescribeFailure(const WorkerFailure& failure) {
  if (!failure.start_error.empty()) {
    return absl::StrCat("could not be started: ", OneLine(failure.start_error));
  }
  if (IsTiedHang(failure)) {
    return "hung with others, and which of them is the cause isn't known; ddprun killed it";
  }
  if (failure.hung) return "hung, so ddprun killed it";
  if (failure.preflight) return "the preflight found what prevents the run (docs/PREFLIGHT.md)";
  return failure.signal != 0 ? DescribeSignal(failure) : DescribeExit(failure.exit_code);
}

std::string FailureReport(const Verdict& verdict, const ReportOptions& options) {
  const bool for_good = verdict.outcome == rendezvous::Outcome::kFailedForGood;
  if (verdict.outcome != rendezvous::Outcome::kFailed && !for_good) return "";
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
