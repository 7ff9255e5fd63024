#include "rendezvous/core/describe.h"

#include <algorithm>
#include <csignal>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/error_line.h"
#include "base/signal_name.h"
#include "base/text.h"
#include "rendezvous/core/hang_evidence.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kNamesListedMax = 3;
constexpr size_t kMessageShownMax = 200;

// What is known about a worker's end, in one line: its message, the error in its last output, or
// else a fact about the machine (a full file system, the out-of-memory killer). "" = nothing is
// known.
std::string CauseLine(const WorkerFailure& failure) {
  if (!failure.message.empty()) {
    return Bounded(failure.message.substr(0, failure.message.find('\n')), kMessageShownMax);
  }
  // A program that a signal ends prints no reason, and its earlier output (an exception that it
  // caught) may be about something else. Only abort(3) follows the text of an uncaught C++
  // exception.
  const std::string line = ErrorLine(failure.stderr_tail);
  const bool says_why =
      failure.signal == 0 || (failure.signal == SIGABRT && absl::StartsWith(line, "what():"));
  if (says_why && !line.empty()) return Bounded(Printable(line), kMessageShownMax);
  for (const std::string& fact : failure.facts) {
    if (absl::StartsWith(fact, kFullDiskFact) || absl::StartsWith(fact, kOutOfMemoryFact)) {
      return Bounded(fact.substr(fact.find(": ") + 2), kMessageShownMax);
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
    const std::string what = failure.message.substr(0, failure.message.find('\n'));
    return absl::StrCat("the preflight: ", Bounded(what, kMessageShownMax));
  }
  const std::string who = absl::StrCat("worker rank ", failure.rank, " on ", failure.hostname);
  if (!failure.start_error.empty()) {
    return absl::StrCat(who, " couldn't be started: ", failure.start_error);
  }
  if (failure.hung) {
    const std::string how = failure.message.substr(0, failure.message.find('\n'));
    if (absl::StrContains(failure.message, kTiedEvidence)) {
      return absl::StrCat("the job hung, and which worker held it up isn't known: ",
                          Bounded(how, kMessageShownMax));
    }
    return absl::StrCat(who, " hung: ", Bounded(how, kMessageShownMax));
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
                      " since the last progress");
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
