#include "rendezvous/core/job/ledger.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace ddprun::rendezvous {
namespace {

// Makes `spent` sum up to `total`: missing time goes into `rest`; excess (messages are delayed) is
// taken from `first`, and then from the largest causes.
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

// Moves time between causes until no cause has less than in `least`. Requires: the total of `least`
// isn't more than that of `spent`.
void RaiseTo(const TimeSpent& least, TimeSpent& spent) {
  for (size_t i = 0; i < kTimeCauses; ++i) {
    while (spent.by[i] < least.by[i]) {
      size_t from = 0;
      for (size_t j = 1; j < kTimeCauses; ++j) {
        if (spent.by[j] - least.by[j] > spent.by[from] - least.by[from]) from = j;
      }
      const absl::Duration moved =
          std::min(least.by[i] - spent.by[i], spent.by[from] - least.by[from]);
      if (moved <= absl::ZeroDuration()) return;
      spent.by[from] -= moved;
      spent.by[i] += moved;
    }
  }
}

}  // namespace

void Ledger::Begin(Instant now) {
  if (state_ != State::kNew) return;
  state_ = State::kForming;
  begun_ = now;
  since_ = now;
}

void Ledger::Form(Instant now, size_t nodes) {
  DDPRUN_CHECK(state_ == State::kForming, "a generation that nobody waited for");
  booked_[TimeCause::kRendezvous] += now - since_;
  recovered_ = recovers_ = false;
  state_ = State::kRunning;
  since_ = now;
  formed_ = now;
  closed_ = Instant::Infinite();
  fault_.reset();
  told_.clear();
  nodes_ = nodes;
  certain_ = {};
}

void Ledger::Report(Instant now, uint32_t group_rank, const NodeTime& time, bool done) {
  if (state_ != State::kRunning && state_ != State::kClosing) return;
  told_[group_rank] = {now, time, done};
  // Ascertain() visits all nodes, so it runs once for the reports of all: with that of the lowest
  // rank.
  if (state_ == State::kRunning && told_.begin()->first == group_rank) Ascertain(now);
}

// Requires: a node has reported.
void Ledger::Ascertain(Instant now) {
  if (told_.size() < nodes_) return;
  recovers_ = false;
  TimeSpent least = told_.begin()->second.time.spent;
  for (const auto& [rank, told] : told_) {
    for (size_t i = 0; i < kTimeCauses; ++i) {
      least.by[i] = std::min(least.by[i], told.time.spent.by[i]);
    }
  }
  least[TimeCause::kUnmarked] = absl::ZeroDuration();  // the first mark makes it start_up
  if (!first_) least[TimeCause::kRestart] += std::exchange(least[TimeCause::kStartUp], {});
  for (size_t i = 0; i < kTimeCauses; ++i) {
    least.by[i] = std::max(least.by[i], certain_.by[i]);
  }
  if (least.Total() <= now - formed_) certain_ = least;
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
  recovers_ = false;
  state_ = State::kForming;
  since_ = now;
}

void Ledger::End(Instant now) {
  booked_ = Spent(now);
  recovered_ = recovers_ = false;
  state_ = State::kEnded;
  since_ = now;
}

LedgerRecord Ledger::ToRecord(Instant now) const {
  const Instant end = state_ == State::kEnded ? since_ : now;
  return {.age = Age(end), .booked = booked_, .first = first_, .marks = marks_};
}

void Ledger::Recover(Instant now, const LedgerRecord& record, std::optional<Instant> formed,
                     std::optional<Instant> closed, bool ended, size_t nodes) {
  DDPRUN_CHECK(state_ == State::kNew, "a ledger that has begun");
  booked_ = record.booked;
  first_ = record.first;
  marks_ = record.marks;
  // booked_ covers the time until the live generation, or the wait for it, began.
  begun_ = formed.value_or(ended ? now : now - (record.age - booked_.Total())) - booked_.Total();
  since_ = ended ? now : formed.value_or(now - (record.age - booked_.Total()));
  state_ = ended ? State::kEnded : formed ? State::kRunning : State::kForming;
  recovers_ = !ended;
  recovered_ = !ended && (!formed || closed);
  if (!formed) return;
  formed_ = *formed;
  nodes_ = nodes;
  if (closed) Close(*closed, std::nullopt);
}

void Ledger::FormedBefore(Instant formed) {
  DDPRUN_CHECK(recovers(), "no recovered generation runs");
  if (formed >= formed_) return;
  begun_ = *begun_ - (formed_ - formed);
  since_ = formed;
  formed_ = formed;
}

absl::Duration Ledger::BegunBefore(Instant begun) {
  if (!recovered_) return absl::ZeroDuration();
  if (state_ == State::kForming) recovers_ = false;
  if (begun >= *begun_) return absl::ZeroDuration();
  const absl::Duration missed = *begun_ - begun;
  begun_ = begun;
  since_ = since_ - missed;
  if (state_ == State::kClosing) {
    formed_ = formed_ - missed;
    closed_ = closed_ - missed;
  }
  return missed;
}

// The lowest rank that reported after the end of the generation, or is done; else the lowest rank.
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
  RaiseTo(certain_, spent);
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
  if (negative) return "time that was spent is negative";
  const TimeSpent counted = Counted(now).value_or(TimeSpent{});
  const bool more =
      !std::equal(counted.by.begin(), counted.by.end(), spent.by.begin(), std::less_equal<>());
  return more ? "more time is counted than was spent" : "";
}

std::optional<TimeSpent> Ledger::Counted(Instant now) const {
  if (recovers_) return std::nullopt;
  TimeSpent counted = booked_;
  if (state_ == State::kForming) counted[TimeCause::kRendezvous] += now - since_;
  if (state_ == State::kRunning || state_ == State::kClosing) counted += certain_;
  if (state_ == State::kClosing) counted[TimeCause::kRestart] += now - closed_;
  return counted;
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
