#include "rendezvous/core/job/ledger.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ddprun::rendezvous {
namespace {

// Makes `spent` sum up to `total`: what is missing goes into `rest`, what is too much (messages
// take their time) is taken from `first`, and then from what is largest.
void FitTo(absl::Duration total, TimeCause rest, TimeCause first, TimeSpent& spent) {
  absl::Duration excess = spent.Total() - total;
  if (excess < absl::ZeroDuration()) {
    spent[rest] -= excess;
    return;
  }
  absl::Duration* from = &spent[first];
  while (excess > absl::ZeroDuration()) {
    const absl::Duration taken = std::min(excess, *from);
    *from -= taken;
    excess -= taken;
    from = &*std::max_element(spent.by.begin(), spent.by.end());
  }
}

}  // namespace

void Ledger::Begin(Instant now) {
  if (state_ != State::kNew) return;
  state_ = State::kForming;
  begun_ = now;
  since_ = now;
}

void Ledger::Form(Instant now) {
  DDPRUN_CHECK(state_ == State::kForming, "a generation that nobody waited for");
  booked_[TimeCause::kRendezvous] += now - since_;
  state_ = State::kRunning;
  since_ = now;
  formed_ = now;
  closed_ = Instant::Infinite();
  fault_.reset();
  told_.clear();
}

void Ledger::Report(Instant now, uint32_t group_rank, const NodeTime& time, bool done) {
  if (state_ == State::kRunning || state_ == State::kClosing) told_[group_rank] = {now, time, done};
}

void Ledger::Close(Instant now, std::optional<Instant> fault) {
  if (state_ != State::kRunning) return;
  state_ = State::kClosing;
  since_ = now;
  closed_ = now;
  fault_ = fault;
}

void Ledger::Settle(Instant now) {
  if (state_ != State::kClosing) return;
  BookGeneration();
  booked_[TimeCause::kRestart] += now - closed_;
  state_ = State::kForming;
  since_ = now;
}

void Ledger::End(Instant now) {
  booked_ = Spent(now);
  state_ = State::kEnded;
  since_ = now;
}

LedgerRecord Ledger::ToRecord(Instant now) const {
  const Instant end = state_ == State::kEnded ? since_ : now;
  return {.age = Age(end), .booked = booked_, .first = first_, .marks = marks_};
}

void Ledger::Recover(Instant now, const LedgerRecord& record, std::optional<Instant> formed,
                     std::optional<Instant> closed, bool ended) {
  DDPRUN_CHECK(state_ == State::kNew, "a ledger that has begun");
  booked_ = record.booked;
  first_ = record.first;
  marks_ = record.marks;
  // What is booked reaches to where the live generation, or the wait for it, began.
  begun_ = formed.value_or(ended ? now : now - (record.age - booked_.Total())) - booked_.Total();
  since_ = ended ? now : formed.value_or(now - (record.age - booked_.Total()));
  state_ = ended ? State::kEnded : formed ? State::kRunning : State::kForming;
  if (!formed) return;
  formed_ = *formed;
  if (closed) Close(*closed, std::nullopt);
}

// The lowest rank that told when the generation was over, or done; else the lowest.
const Ledger::Told* Ledger::Speaker() const {
  for (const auto& [rank, told] : told_) {
    if (told.at >= closed_ || told.done) return &told;
  }
  return told_.empty() ? nullptr : &told_.begin()->second;
}

TimeSpent Ledger::SplitGeneration(Instant end) const {
  const absl::Duration total = end - formed_;
  TimeSpent spent;
  const Told* speaker = Speaker();
  if (speaker == nullptr) {
    spent[marks_ ? TimeCause::kRestart : TimeCause::kUnmarked] = total;
    return spent;
  }
  spent = speaker->time.spent;
  const TimeCause last_in = speaker->time.last_in;
  absl::Duration last = speaker->time.last;
  const bool to_its_end = speaker->at >= closed_ || speaker->done;
  if (!to_its_end) last += std::max(end - speaker->at, absl::ZeroDuration());
  const absl::Duration unknown =
      fault_ ? std::max(end - *fault_, absl::ZeroDuration()) : absl::ZeroDuration();
  const absl::Duration detection = std::min(last, unknown);
  spent[last_in] += last - detection;
  spent[TimeCause::kDetection] += detection;
  FitTo(total, speaker->done ? TimeCause::kEnding : TimeCause::kOther, last_in, spent);
  // Workers that have marked before were on their way to their first mark.
  if (marks_) spent[TimeCause::kStartUp] += std::exchange(spent[TimeCause::kUnmarked], {});
  if (!first_) spent[TimeCause::kRestart] += std::exchange(spent[TimeCause::kStartUp], {});
  return spent;
}

void Ledger::BookGeneration() {
  const TimeSpent spent = SplitGeneration(closed_);
  booked_ += spent;
  first_ = false;
  marks_ = marks_ || spent[TimeCause::kUnmarked] == absl::ZeroDuration();
}

absl::Duration Ledger::Age(Instant now) const {
  return begun_ ? now - *begun_ : absl::ZeroDuration();
}

std::string Ledger::BrokenInvariant(Instant now) const {
  const Instant end = state_ == State::kEnded ? since_ : now;
  const TimeSpent spent = Spent(now);
  if (spent.Total() != Age(end)) return "the ledger doesn't sum up to the job's time";
  const bool negative = std::any_of(spent.by.begin(), spent.by.end(), [](absl::Duration each) {
    return each < absl::ZeroDuration();
  });
  return negative ? "time that was spent is negative" : "";
}

TimeSpent Ledger::Spent(Instant now) const {
  TimeSpent spent = booked_;
  switch (state_) {
    case State::kForming:
      spent[TimeCause::kRendezvous] += now - since_;
      break;
    case State::kRunning:
      spent += SplitGeneration(now);
      break;
    case State::kClosing:
      spent += SplitGeneration(closed_);
      spent[TimeCause::kRestart] += now - closed_;
      break;
    case State::kNew:
    case State::kEnded:
      break;
  }
  return spent;
}

}  // namespace ddprun::rendezvous
