#include "rendezvous/core/describe.h"

#include <algorithm>
#include <csignal>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/text.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kNamesListedMax = 3;
// A message of the C++ runtime ends with what to do, and is rarely longer.
constexpr size_t kMessageShownMax = 600;

// The first line, or as much of it as is shown.
std::string FirstLine(absl::string_view text) {
  text = text.substr(0, text.find('\n'));
  if (text.size() <= kMessageShownMax) return std::string(text);
  return absl::StrCat(text.substr(0, CutLength(text, kMessageShownMax)), "…");
}

// What is known about a worker's end, in one line: its message, the error in its last output, or
// else a fact about the machine (a full file system, the out-of-memory killer). "" = nothing is
// known.
std::string CauseLine(const WorkerFailure& failure) {
  if (!failure.message.empty()) {
    return FirstLine(failure.message);
  }
  // A program that a signal ends prints no reason, and its earlier output (an exception that it
  // caught) may be about something else. Only abort(3) follows the text of an uncaught C++
  // exception.
  const std::string line = ErrorLine(failure.stderr_tail);
  const bool says_why =
      failure.signal == 0 || (failure.signal == SIGABRT && absl::StartsWith(line, "what():"));
  if (says_why && !line.empty()) return FirstLine(Printable(line));
  for (const std::string& fact : failure.facts) {
    if (absl::StartsWith(fact, kFullDiskFact) || absl::StartsWith(fact, kOutOfMemoryFact)) {
      return FirstLine(fact.substr(fact.find(": ") + 2));
    }
  }
  return "";
}

}  // namespace

std::string DurationText(absl::Duration duration) {
  if (duration % absl::Seconds(1) == absl::ZeroDuration()) {
    return absl::StrCat(absl::ToInt64Seconds(duration), " s");
  }
  return absl::StrCat(absl::ToInt64Milliseconds(duration), " ms");
}

std::string NodesText(const JobSpec& spec) {
  return spec.nodes_min == spec.nodes_max ? absl::StrCat(spec.nodes_max)
                                          : absl::StrCat(spec.nodes_min, " to ", spec.nodes_max);
}

std::string ListText(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  const size_t listed = std::min(names.size(), kNamesListedMax);
  std::string text = absl::StrJoin(absl::MakeConstSpan(names).first(listed), ", ");
  if (names.size() > listed) absl::StrAppend(&text, " and ", names.size() - listed, " more");
  return text;
}

std::string FailureText(const WorkerFailure& failure) {
  if (failure.preflight) {
    return absl::StrCat("the preflight: ", FirstLine(failure.message));
  }
  const std::string who = absl::StrCat("worker rank ", failure.rank, " on ", failure.hostname);
  if (!failure.start_error.empty()) {
    return absl::StrCat(who, " couldn't be started: ", failure.start_error);
  }
  if (failure.hung) {
    const std::string how = FirstLine(failure.message);
    if (absl::StrContains(failure.message, kTiedEvidence)) {
      return absl::StrCat("the job hung, and which worker held it up isn't known: ", how);
    }
    return absl::StrCat(who, " hung: ", how);
  }
  const std::string how = failure.signal != 0
                              ? absl::StrCat(" was killed by ", SignalName(failure.signal))
                              : absl::StrCat(" exited with code ", failure.exit_code);
  const std::string cause = CauseLine(failure);
  return absl::StrCat(who, how, cause.empty() ? "" : ": ", cause);
}

std::string OutcomeText(Outcome outcome) {
  switch (outcome) {
    case Outcome::kSucceeded:
      return "succeeded";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kFailedForGood:
      return "failed for good";
    case Outcome::kStopped:
      return "stopped";
    case Outcome::kPreempted:
      return "preempted";
  }
  return "unknown";
}

std::string OutcomeName(Outcome outcome) {
  return outcome == Outcome::kFailedForGood ? "failed_for_good" : OutcomeText(outcome);
}

std::string RestartText(uint32_t restart_count, uint32_t restarts_charged, uint32_t max_restarts) {
  if (max_restarts == 0) return absl::StrCat("restart ", restart_count);
  if (restart_count == restarts_charged) {
    return absl::StrCat("restart ", restart_count, " of ", max_restarts);
  }
  return absl::StrCat("restart ", restart_count, ", ", restarts_charged, " of ", max_restarts,
                      " charged");
}

std::string LeftText(const std::vector<uint32_t>& ranks) {
  std::vector<std::string> names;
  for (const uint32_t rank : ranks) names.push_back(absl::StrCat(rank));
  return absl::StrCat(kLeftFact, ranks.size() == 1 ? "rank " : "ranks ", ListText(names),
                      " had ended with status 0");
}

std::string Bounded(std::string text, size_t bytes_max) {
  if (text.size() > bytes_max) text.resize(bytes_max);
  return text;
}

}  // namespace ddprun::rendezvous
