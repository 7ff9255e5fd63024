#ifndef DDPRUN_TESTS_SIM_EVENT_QUEUE_H_
#define DDPRUN_TESTS_SIM_EVENT_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/instant.h"

namespace ddprun::sim {

// Something to be done once, and moved until then, never copied.
using Call = absl::AnyInvocable<void()>;

// Simulated time: calls to be made at instants, in order of time and then of posting.
class EventQueue {
 public:
  // A call that is made at one instant at most, and put off again and again: a queue of these needs
  // no place for each time that it was. Outlives the queue's last RunOne.
  class Timer {
   public:
    explicit Timer(Call call) : call_(std::move(call)) {}
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    friend class EventQueue;
    Call call_;
    Instant at_;
    uint64_t number_ = 0;  // of its last posting; 0 = it isn't armed
    // Its one place in the queue, which isn't later; 0 = it has none.
    Instant place_at_;
    uint64_t place_number_ = 0;
  };

  Instant now() const { return now_; }

  void At(Instant at, Call call) {
    if (free_.empty()) {
      free_.push_back(calls_.size());
      calls_.emplace_back();
    }
    const size_t slot = free_.back();
    free_.pop_back();
    calls_[slot] = std::move(call);
    Push({std::max(at, now_), next_++, slot, nullptr});
  }
  void After(absl::Duration delay, Call call) { At(now_ + delay, std::move(call)); }

  // As At() with the timer's call, in the place of its last Arm().
  void Arm(Instant at, Timer* timer) {
    timer->at_ = std::max(at, now_);
    timer->number_ = next_++;
    if (timer->place_number_ == 0 || timer->at_ < timer->place_at_) Place(timer);
  }
  static void Disarm(Timer* timer) { timer->number_ = 0; }

  // Makes the next call; false when there is none before `end`, to which time then moves.
  bool RunOne(Instant end) {
    while (!posted_.empty() && posted_.front().at <= end) {
      std::pop_heap(posted_.begin(), posted_.end(), IsLater());
      const Posted next = posted_.back();
      posted_.pop_back();
      if (next.timer == nullptr) {
        now_ = next.at;
        Call call = std::move(calls_[next.slot]);
        free_.push_back(next.slot);
        call();
        return true;
      }
      if (!IsDue(next)) continue;
      now_ = next.at;
      next.timer->call_();
      return true;
    }
    now_ = end;
    return false;
  }

 private:
  struct Posted {
    Instant at;
    uint64_t number;
    size_t slot;   // in calls_
    Timer* timer;  // null: a call
  };
  struct IsLater {
    bool operator()(const Posted& a, const Posted& b) const {
      return a.at != b.at ? a.at > b.at : a.number > b.number;
    }
  };

  void Push(Posted posted) {
    posted_.push_back(posted);
    std::push_heap(posted_.begin(), posted_.end(), IsLater());
  }

  void Place(Timer* timer) {
    timer->place_at_ = timer->at_;
    timer->place_number_ = timer->number_;
    Push({timer->at_, timer->number_, 0, timer});
  }

  // Whether the timer's time has come; else it was put off, or has another place.
  bool IsDue(const Posted& place) {
    Timer* const timer = place.timer;
    if (timer->place_number_ != place.number) return false;
    timer->place_number_ = 0;
    if (timer->number_ == place.number) {
      timer->number_ = 0;
      return true;
    }
    if (timer->number_ != 0) Place(timer);
    return false;
  }

  Instant now_;
  uint64_t next_ = 1;
  std::vector<Posted> posted_;  // a heap, the next one first
  std::vector<Call> calls_;
  std::vector<size_t> free_;  // of calls_
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_EVENT_QUEUE_H_
