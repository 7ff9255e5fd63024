#include "rendezvous/core/failures/restart_policy.h"

#include <algorithm>
#include <csignal>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/failures/first_cause.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {
namespace {

// The progress of a generation, compared with all before it.
struct Progress {
  bool quick = false;     // it ended right after its start, without a new step
  bool advanced = false;  // it lasted long enough to count, or completed a new step
  bool refills = false;   // it gives restarts back
};

// Takes the steps of the generation into the history.
Progress Judge(const RestartRules& rules, const RoundEnd& end, RestartHistory* history) {
  const bool marked = end.step.has_value();
  const bool new_step = marked && (!history->highest || *end.step > *history->highest);
  if (new_step) history->highest = end.step;
  // Steps that were done again are no progress, however long they took.
  const bool may_count = !marked || new_step;
  const bool window = rules.restart_window > absl::ZeroDuration();
  return {.quick = end.uptime < kQuickFailure && !new_step,
          .advanced = new_step || (!marked && end.uptime >= kProgressUptime),
          .refills = window && may_count && end.uptime >= rules.restart_window};
}

// Counts failures that came right after the start.
void CountQuick(const RoundEnd& end, const Progress& progress, RestartHistory* history) {
  if (!progress.quick) {
    history->quick_failures = 0;
    history->same_failures = 0;
    history->last_failure.clear();
    return;
  }
  // A hang takes time to be detected, so it is no failed start.
  if (end.cause != nullptr && (end.cause->hung || KilledFromOutside(*end.cause))) return;
  ++history->quick_failures;
  // The loss of a peer is a consequence of something else, and the network may get better.
  if (end.cause == nullptr || Weigh(*end.cause) == Evidence::kPeerError) return;
  const std::string kind = FailureKind(*end.cause);
  history->same_failures = kind == history->last_failure ? history->same_failures + 1 : 1;
  history->last_failure = kind;
}

// The first restart comes at once, the next ones after a pause that doubles each time.
absl::Duration PauseBefore(const RestartRules& rules, uint32_t quick_failures, double jitter) {
  if (quick_failures < 2) return absl::ZeroDuration();
  const uint32_t doublings = std::min(quick_failures - 2, 30U);
  const absl::Duration full =
      std::min(kFirstBackoff * (int64_t{1} << doublings), rules.backoff_max);
  const absl::Duration pause = full * (1 - jitter / 2);
  return absl::Floor(pause, absl::Milliseconds(1));
}

RestartDecision EndFailed(RestartDecision decision, Rule rule, Outcome outcome, std::string why) {
  decision.rule = rule;
  decision.verdict = outcome;
  decision.why = std::move(why);
  return decision;
}

std::string SpentText(const JobSpec& spec, const RoundEnd& end) {
  if (spec.max_restarts == 0) {
    const bool from_outside = end.cause != nullptr && KilledFromOutside(*end.cause);
    return spec.survivors_restart && from_outside
               ? "no restart is allowed; --max_restarts N would have started all workers again"
               : "";
  }
  return spec.max_restarts == 1
             ? "the only restart is used up"
             : absl::StrCat("all ", CountText(spec.max_restarts, "restart"), " are used up");
}

RestartDecision DecideMembership(const JobSpec& spec, RestartDecision decision) {
  decision.blame = Blame::kMembership;
  decision.rule = Rule::kMembershipChange;
  const uint32_t most = spec.restart.max_membership_changes;
  if (decision.history.membership_changes < most) {
    ++decision.history.membership_changes;
    return decision;
  }
  return EndFailed(
      std::move(decision), Rule::kMembershipSpent, Outcome::kFailed,
      absl::StrCat("more than ", CountText(most, "membership change"),
                   " without a generation that made progress for ", DurationText(kProgressUptime)));
}

// Workers that keep their processes lose one step at most, and a kill from outside says nothing
// about the program: such a kill is no reason to end the job or to charge a restart, unless the
// user chose that there be none. The program's own failures, an error or a crash, are charged as
// under torchrun.
bool SurvivorsRestart(const JobSpec& spec, const RestartHistory& history, const RoundEnd& end) {
  return spec.survivors_restart && end.any_kept && end.cause != nullptr &&
         KilledFromOutside(*end.cause) && history.without_progress <= kSurvivorsRestartsInARow;
}

RestartDecision DecideFailure(const JobSpec& spec, RestartDecision decision, const RoundEnd& end) {
  const RestartRules& rules = spec.restart;
  RestartHistory& history = decision.history;
  if (SurvivorsRestart(spec, history, end)) {
    ++history.restart_count;
    decision.rule = Rule::kSurvivors;
    decision.why = absl::StrCat(
        RestartText(history.restart_count, history.restarts_charged, spec.max_restarts),
        ", for the workers that go on");
    return decision;
  }
  // Checked before the other limits, as in torchrun: scripts test for that status.
  if (history.restarts_charged >= spec.max_restarts) {
    std::string why = SpentText(spec, end);
    return EndFailed(std::move(decision), Rule::kRestartsSpent, Outcome::kFailed, std::move(why));
  }
  if (rules.crash_loop > 0 && history.same_failures >= rules.crash_loop) {
    return EndFailed(
        std::move(decision), Rule::kCrashLoop, Outcome::kFailedForGood,
        absl::StrCat(CountText(rules.crash_loop, "start"), " in a row failed in this way within ",
                     DurationText(kQuickFailure), " (--crash_loop)"));
  }
  if (rules.give_up_after > 0 && history.without_progress >= rules.give_up_after) {
    return EndFailed(std::move(decision), Rule::kNoProgress, Outcome::kFailedForGood,
                     absl::StrCat(CountText(rules.give_up_after, "generation"),
                                  " in a row failed without progress (--give_up_after)"));
  }
  ++history.restart_count;
  ++history.restarts_charged;
  decision.pause = PauseBefore(rules, history.quick_failures, end.jitter);
  decision.why = RestartText(history.restart_count, history.restarts_charged, spec.max_restarts);
  if (decision.pause == absl::ZeroDuration()) return decision;
  decision.rule = Rule::kBackoff;
  absl::StrAppend(&decision.why, " after a pause of ", DurationText(decision.pause));
  return decision;
}

}  // namespace

std::string BlameName(Blame blame) {
  switch (blame) {
    case Blame::kWorker:
      return "worker";
    case Blame::kMembership:
      return "membership";
    case Blame::kGrowth:
      return "growth";
  }
  return "unknown";
}

RestartDecision DecideRestart(const JobSpec& spec, const RestartHistory& before,
                              const RoundEnd& end) {
  RestartDecision decision{.history = before};
  RestartHistory& history = decision.history;
  const Progress progress = Judge(spec.restart, end, &history);
  if (progress.refills) history.restarts_charged = 0;
  if (progress.advanced) {
    history.without_progress = 0;
    history.quick_failures = 0;
    history.same_failures = 0;
    history.last_failure.clear();
  }
  if (progress.advanced && end.uptime >= kProgressUptime) history.membership_changes = 0;
  // Checked before losses, because generations after the first one aren't examined again.
  if (end.cause != nullptr && end.cause->preflight) {
    return EndFailed(std::move(decision), Rule::kPreflight, Outcome::kFailed, "");
  }
  if (end.any_gone || end.newcomers_gone) return DecideMembership(spec, std::move(decision));
  if (end.for_growth) {
    decision.blame = Blame::kGrowth;
    decision.rule = Rule::kGrowth;
    return decision;
  }
  CountQuick(end, progress, &history);
  if (!progress.advanced) ++history.without_progress;
  return DecideFailure(spec, std::move(decision), end);
}

bool KilledFromOutside(const WorkerFailure& failure) {
  if (failure.hung) return absl::StrContains(failure.message, kStoppedEvidence);
  switch (failure.signal) {
    case SIGKILL:
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGQUIT:
    case SIGUSR1:
    case SIGUSR2:
      break;
    default:
      return false;
  }
  const bool out_of_memory =
      std::any_of(failure.facts.begin(), failure.facts.end(),
                  [](const std::string& fact) { return absl::StartsWith(fact, kOutOfMemoryFact); });
  return failure.message.empty() && !out_of_memory;
}

std::string FailureKind(const WorkerFailure& failure) {
  return absl::StrCat(failure.exit_code, " ", failure.signal, " ", failure.start_error, " ",
                      failure.message.empty()
                          ? ErrorLine(failure.stderr_tail)
                          : failure.message.substr(0, failure.message.find('\n')));
}

}  // namespace ddprun::rendezvous
