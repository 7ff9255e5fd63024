#include "launcher/core/time_book.h"

#include <algorithm>
#include <utility>

#include "base/progress_page.h"

namespace ddprun::launcher {

using rendezvous::TimeCause;

namespace {

bool IsStart(TimeCause cause) {
  return cause == TimeCause::kUnmarked || cause == TimeCause::kStartUp;
}

}  // namespace

TimeBook::TimeBook(uint64_t redone_to, Instant now)
    : redone_to_(redone_to), last_(now), looked_(now) {}

TimeCause TimeBook::CauseOf(const std::vector<uint64_t>& words) const {
  bool starts = false;
  bool trains = false;
  bool counted = false;
  bool evaluates = false;
  bool saves = false;
  bool waits = false;
  uint64_t step = 0;
  for (const uint64_t word : words) {
    const ProgressPhase phase = ProgressPhaseOf(word);
    starts = starts || phase == ProgressPhase::kStart;
    trains = trains || phase == ProgressPhase::kTrain;
    counted = counted || phase == ProgressPhase::kCounted;
    evaluates = evaluates || phase == ProgressPhase::kEvaluation;
    saves = saves || phase == ProgressPhase::kCheckpoint;
    waits = waits || phase == ProgressPhase::kIdle;
    if (phase == ProgressPhase::kTrain) step = std::max(step, ProgressStepOf(word));
  }
  if (saves) return TimeCause::kCheckpoint;
  if (evaluates) return TimeCause::kEvaluation;
  if (trains) {
    const bool again = redone_to_ > 0 && step <= redone_to_;  // a Session's first step has number 0
    return again ? TimeCause::kRework : TimeCause::kTraining;
  }
  if (counted) return TimeCause::kTraining;  // rework can't be recognized
  if (starts) return TimeCause::kStartUp;
  if (waits) return TimeCause::kIdle;
  const bool any = std::any_of(words.begin(), words.end(), [](uint64_t word) { return word != 0; });
  return any ? TimeCause::kEnding : TimeCause::kUnmarked;
}

void TimeBook::OnLook(Instant now, const Look& look) {
  if (!closed_.is_infinite()) return;
  words_.resize(look.words.size());
  const absl::Duration waited = std::max(look.data_wait - data_wait_, absl::ZeroDuration());
  data_owed_ += waited;
  data_wait_ = std::max(look.data_wait, data_wait_);
  const Instant changed = ChangedAt(now, look);
  looked_ = now;
  if (look.words == words_) return;
  const bool was_start = IsStart(cause_);
  BookUntil(changed);
  if (was_start) {
    // A wait that is longer than the time since the mark began before it, and is part of the start.
    data_owed_ = waited <= now - changed ? waited : absl::ZeroDuration();
  }
  words_ = look.words;
  cause_ = CauseOf(words_);
  // Time before the first mark is start-up.
  if (cause_ != TimeCause::kUnmarked) {
    spent_[TimeCause::kStartUp] += std::exchange(spent_[TimeCause::kUnmarked], {});
  }
}

// When the last of the new words was stored.
Instant TimeBook::ChangedAt(Instant now, const Look& look) const {
  Instant latest = looked_;
  for (size_t i = 0; i < look.words.size(); ++i) {
    if (look.words[i] == words_[i]) continue;
    const bool known = i < look.marked.size() && look.marked[i] >= looked_ && look.marked[i] <= now;
    latest = std::max(latest, known ? look.marked[i] : now);
  }
  return latest;
}

void TimeBook::BookUntil(Instant now) {
  absl::Duration took = std::max(now - last_, absl::ZeroDuration());
  last_ = now;
  if (cause_ == TimeCause::kTraining || cause_ == TimeCause::kRework) {
    const absl::Duration waited = std::min(data_owed_, took);
    data_owed_ -= waited;
    spent_[TimeCause::kDataWait] += waited;
    took -= waited;
  }
  spent_[cause_] += took;
}

void TimeBook::Close(Instant now) { closed_ = std::min(closed_, now); }

rendezvous::NodeTime TimeBook::Read(Instant now) const {
  return {.spent = spent_,
          .last = std::max(std::min(now, closed_) - last_, absl::ZeroDuration()),
          .last_in = cause_};
}

}  // namespace ddprun::launcher
