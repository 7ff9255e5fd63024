#include "rendezvous/core/generation/closing.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/text.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/failures/node_blame.h"
#include "rendezvous/core/timing.h"

// What the end of a generation costs (R7).
//
// Goal: decide once for each generation whether its end costs a restart, a membership change or
// nothing, and name the cause. Settle() decides when every member has answered or is gone. Deciding
// in Begin(), when the trigger arrives, would be wrong: when a machine dies, the collective of a
// peer may fail seconds before the machine's lease expires. The trigger is then the peer's error,
// and the job would pay a restart for a lost node.
//
// Settle() judges four facts:
//   Begin()           the first trigger, and the uptime until then: stopping isn't uptime
//   NoteLoss()        why the first member was lost or left. It may precede Begin(), because the
//                     loss itself may be the trigger; Open() alone resets it.
//   Round             the failures of workers, which FindFirstCause() orders (R12)
//   newcomers_gone    how many of the nodes that a growth was for are no longer there
//
// Example: nodes a (rank 0) and b (rank 1), max_restarts 2, none charged so far.
//
//   the generation ends because           blame        why                               charged
//   b's worker exits with 1               kWorker      "worker rank 1 on hostb exited…"  1 of 2
//   b's worker exits with 1, a is lost    kMembership  "a was lost"                      none
//   a node joined                         kGrowth      "1 node joined"                   none
//   2 nodes joined, both are gone again   kMembership  "2 newcomers were gone before …"  none
//
// The second row blames no node: after a loss, failures of other workers count as consequences. The
// last row is charged to the budget of membership changes, or else a node that joins and leaves
// again and again could end every generation for free.
//
// The text counts equal failures from kSameFailuresNamed on. The count ends no job unless the user
// asks for that with --crash_loop (restart_policy.h says why).

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
  // When --crash_loop ends the job, the decision's own text already has the count.
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
