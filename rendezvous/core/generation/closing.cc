#include "rendezvous/core/generation/closing.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/text.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/failures/node_blame.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

void Closing::Open() {
  begun_ = false;
  for_growth_ = false;
  loss_.clear();
}

void Closing::Begin(Instant now, const Trigger& trigger, absl::Duration uptime) {
  DDPRUN_CHECK(!begun_, "a generation ends once");
  DDPRUN_CHECK(uptime >= absl::ZeroDuration(), absl::FormatDuration(uptime));
  begun_ = true;
  began_ = now;
  reason_ = trigger.reason;
  for_growth_ = trigger.for_growth;
  uptime_ = uptime;
}

std::optional<ClosingRecord> Closing::ToRecord(Instant now) const {
  if (!begun_) return std::nullopt;
  return ClosingRecord{.age = now - began_,
                       .uptime = uptime_,
                       .reason = reason_,
                       .for_growth = for_growth_,
                       .loss = loss_};
}

void Closing::Recover(Instant now, const RestartHistory& history,
                      const std::optional<ClosingRecord>& record) {
  DDPRUN_CHECK(!begun_ && history_ == RestartHistory(), "generations were forgotten");
  history_ = history;
  if (!record) return;
  begun_ = true;
  began_ = now - record->age;
  reason_ = record->reason;
  for_growth_ = record->for_growth;
  uptime_ = record->uptime;
  loss_ = record->loss;
}

void Closing::NoteLoss(const std::string& reason) {
  if (loss_.empty()) loss_ = reason;
}

Settlement Closing::Settle(const JobSpec& spec, const Round& round, double jitter,
                           uint32_t newcomers_gone) {
  DDPRUN_CHECK(begun_, "a generation that was not to end");
  const FirstCause cause = FindFirstCause(round.failures());
  const WorkerFailure* first = cause.failures.empty() ? nullptr : &cause.failures.front();
  Settlement settled{.decision = DecideRestart(spec, history_,
                                               {.any_gone = round.any_gone(),
                                                .for_growth = for_growth_,
                                                .newcomers_gone = for_growth_ && newcomers_gone > 0,
                                                .uptime = uptime_,
                                                .step = round.step(),
                                                .any_kept = round.any_kept(),
                                                .cause = first,
                                                .jitter = jitter})};
  const RestartDecision& decision = settled.decision;
  DDPRUN_CHECK(decision.history.restart_count >= history_.restart_count, "restarts are forgotten");
  history_ = decision.history;
  settled.why = reason_;
  if (decision.blame == Blame::kMembership) {
    settled.why = round.any_gone() ? loss_
                                   : absl::StrCat(CountText(newcomers_gone, "newcomer"),
                                                  newcomers_gone == 1 ? " was" : " were",
                                                  " gone before taking part");
  }
  if (decision.blame != Blame::kWorker) return settled;
  if (first != nullptr) settled.why = FailureText(*first);
  // The user decides what to conclude from it: the job ends by this only if --crash_loop says so,
  // and then the decision has the same words.
  if (history_.same_failures >= kSameFailuresNamed && decision.rule != Rule::kCrashLoop) {
    absl::StrAppend(&settled.why, "; the same failure ", history_.same_failures, " times in a row");
  }
  settled.blamed = BlamedNode(cause);
  if (settled.blamed) settled.blamed_host = first->hostname;
  return settled;
}

std::string Closing::BrokenInvariant() const {
  if (for_growth_ && !begun_) return "growth ends a generation that goes on";
  if (uptime_ < absl::ZeroDuration()) return "a generation that ended before it began";
  if (history_.restarts_charged > history_.restart_count) return "more is charged than there was";
  return "";
}

std::string WithDecision(const Settlement& settlement) {
  const std::string& more = settlement.decision.why;
  return more.empty() ? settlement.why : absl::StrCat(settlement.why, " (", more, ")");
}

}  // namespace ddprun::rendezvous
