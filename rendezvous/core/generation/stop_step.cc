#include "rendezvous/core/generation/stop_step.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/progress_page.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/describe.h"

// One step at which all ranks of a generation stop (R14).
//
// Goal: choose a step S that no rank has passed, while all ranks go on training. "The highest step
// plus one" alone fails: a fast rank passes it while the proposal is under way, and what the ranks
// save doesn't fit together. A margin that no rank can pass doesn't exist either, because nothing
// bounds how long a message takes. So each round proposes S, the agents hold workers that reach S,
// and each agent answers whether all of its workers are below S or wait at it.
//
// Invariant: when every member of a round has answered `below`, no worker can pass S any more, so S
// can be committed. If a worker was past S, the next S is above the highest step ever reported, by
// twice the margin. The margin grows until it exceeds the steps that a round trip takes.
//
//   round  answers: highest step, below?   highest_  margin_  next
//   1      17; 16                          17        1        propose S = 18
//   2      18, past it; 17                 18        2        propose S = 20
//   3      19; 20, past it                 20        4        propose S = 24
//   4      22; 22, all below                                  commit 24
//
// Why not a margin of time: it delays jobs with slow steps, and fast ones need a second round
// anyway. A collective of ours would cost every step; membarrier(2) is blocked in containers.
//
// The first margin is 1 and the steps that kAgreeingTime holds: with steps of 1 ms it is 51, and S
// is mostly agreed on in one round. With an unknown step time it is 1, and doubling finds the rest.
//
// How the deadline is shared out (kAgreeingShare, kReachingShare): a quarter of it to agree; at
// most half of what is left to reach S; the rest to save, because nobody knows how long that takes.
// With 40 s and steps of 19 s, the first S is 19 s away, which is within 20 s; the second would be
// 38 s away, and the agreement is given up.
//
// Only answers to round_ count. first_round_ differs between the lives of a service, so an answer
// to the agreement of one life isn't taken for an answer to that of the next.

namespace ddprun::rendezvous {

void StopAgreement::Begin(Instant now, Instant until, std::set<uint32_t> members) {
  DDPRUN_CHECK(!active(), "one agreement at a time");
  Reset();
  state_ = State::kAsking;
  began_ = now;
  until_ = until;
  members_ = std::move(members);
  awaited_ = members_;
  round_ = first_round_ + 1;
}

void StopAgreement::Hasten(Instant until) { until_ = std::min(until_, until); }

void StopAgreement::Reset() { *this = StopAgreement(first_round_); }

Instant StopAgreement::deadline() const {
  return active() ? began_ + (until_ - began_) / kAgreeingShare : Instant::Infinite();
}

StopAgreement::Action StopAgreement::Add(Instant now, uint32_t group_rank, uint32_t round,
                                         const StopLook& look) {
  if (!active() || round != round_ || awaited_.erase(group_rank) == 0) return Action::kNone;
  if (!look.heeds) return GiveUp("not all workers ask for a stop step (docs/PROGRESS.md)");
  highest_ = std::max(highest_, look.highest);
  below_ = below_ && look.below;
  step_time_ = std::max(step_time_, look.step_time);
  return Advance(now);
}

StopAgreement::Action StopAgreement::Drop(Instant now, uint32_t group_rank) {
  members_.erase(group_rank);
  if (!active() || awaited_.erase(group_rank) == 0) return Action::kNone;
  return Advance(now);
}

StopAgreement::Action StopAgreement::OnTimer(Instant now) {
  if (now < deadline()) return Action::kNone;
  return GiveUp(absl::StrCat("no agreement within ", DurationText(now - began_)));
}

// When all have answered: the next round, or the end.
StopAgreement::Action StopAgreement::Advance(Instant now) {
  if (!awaited_.empty()) return Action::kNone;
  if (members_.empty()) return GiveUp("all workers have ended");
  if (state_ == State::kPreparing && below_) {
    state_ = State::kCommitted;
    return Action::kCommit;
  }
  if (state_ == State::kAsking) {
    margin_ = 1;
    if (step_time_ > absl::ZeroDuration()) {
      margin_ += static_cast<uint64_t>(kAgreeingTime / step_time_);
    }
  } else {
    margin_ *= 2;
  }
  if (highest_ + margin_ > kProgressStepMax) return GiveUp("the steps don't fit into 56 bits");
  const absl::Duration way = step_time_ * static_cast<double>(margin_);
  const absl::Duration room = (until_ - now) / kReachingShare;
  if (way > room) {
    return GiveUp(absl::StrCat("the next step to stop at is ", DurationText(way),
                               " away, more than half of the ", DurationText(until_ - now),
                               " that are left (--preempt_deadline)"));
  }
  state_ = State::kPreparing;
  DDPRUN_CHECK(margin_ > 0, "a step that some have passed");
  step_ = highest_ + margin_;
  ++round_;
  below_ = true;
  awaited_ = members_;
  return Action::kAsk;
}

std::string StopAgreement::BrokenInvariant() const {
  if (!std::includes(members_.begin(), members_.end(), awaited_.begin(), awaited_.end())) {
    return "an answer of no member is awaited";
  }
  if (active() == awaited_.empty()) return "an agreement that waits for nobody, or the reverse";
  if ((state_ == State::kNone) != (round_ == 0)) return "rounds of no agreement";
  const bool proposed = state_ == State::kPreparing || state_ == State::kCommitted;
  return proposed == (step_ > 0) ? "" : "a step that nobody proposed";
}

StopAgreement::Action StopAgreement::GiveUp(std::string why) {
  Reset();
  why_ = std::move(why);
  return Action::kGiveUp;
}

}  // namespace ddprun::rendezvous
