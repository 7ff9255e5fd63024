#ifndef DDPRUN_TESTS_SIM_EVENT_QUEUE_H_
#define DDPRUN_TESTS_SIM_EVENT_QUEUE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
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
  // An object that is called again and again with a number: no closure is made for each call.
  class Receiver {
   public:
    virtual void OnDue(uint64_t what) = 0;

   protected:
    ~Receiver() = default;
  };

  // A call that is due at one instant at most and is put off often: it has one place in the queue,
  // however often it was put off. Outlives the queue's last RunOne.
  class Timer final : private Receiver {
   public:
    explicit Timer(Call call) : call_(std::move(call)) {}
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

   private:
    friend class EventQueue;
    void OnDue(uint64_t /*what*/) override { call_(); }

    Call call_;
    Instant at_;
    uint64_t number_ = 0;  // of its last posting; 0 = it isn't armed
    // The timer's one place in the queue, never later than `at_`; 0 = it has none.
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

  // Calls receiver->OnDue(what) at that time. The receiver outlives the queue's last RunOne.
  // Requires: `what` isn't UINT64_MAX.
  void Post(Instant at, Receiver* receiver, uint64_t what) {
    Push({std::max(at, now_), next_++, what, receiver});
  }

  // Calls receiver->OnDue(i) at each at[i]. These are kept beside the heap, so that events which
  // are known long before don't make it deeper. Requires: it is called once, before anything of it
  // is due.
  void PostAll(const std::vector<Instant>& at, Receiver* receiver) {
    for (size_t i = 0; i < at.size(); ++i) ahead_.push_back({at[i], next_++, i, receiver});
    std::sort(ahead_.begin(), ahead_.end(), [](const Posted& a, const Posted& b) { return b < a; });
  }

  // Makes the timer's call at that time, and not at the time of its last Arm().
  void Arm(Instant at, Timer* timer) {
    timer->at_ = std::max(at, now_);
    timer->number_ = next_++;
    if (timer->place_number_ == 0 || timer->at_ < timer->place_at_) Place(timer);
  }
  static void Disarm(Timer* timer) { timer->number_ = 0; }

  // Makes the next call; false when there is none before `end`, to which time then moves.
  bool RunOne(Instant end) {
    while (const Posted* const first = First()) {
      if (first->at > end) break;
      const Posted next = Pop();
      if (next.what == kOfTimer && !IsDue(next)) continue;
      now_ = next.at;
      if (next.receiver != nullptr) {
        next.receiver->OnDue(next.what);
        return true;
      }
      Call& call = calls_[next.what];  // stays where it is, whatever is posted meanwhile
      call();
      call = nullptr;
      free_.push_back(next.what);
      return true;
    }
    now_ = end;
    return false;
  }

 private:
  static constexpr uint64_t kOfTimer = UINT64_MAX;
  struct Posted {
    Instant at;
    uint64_t number;
    uint64_t what;       // for the receiver; without one a place in calls_
    Receiver* receiver;  // a Timer: `what` is kOfTimer

    bool operator<(const Posted& other) const {
      return at != other.at ? at < other.at : number < other.number;
    }
  };
  // Children of a place in the heap: with four, the way down is half as long as with two, and the
  // children that are compared lie side by side.
  static constexpr size_t kChildren = 4;

  void Push(const Posted& posted) {
    size_t place = posted_.size();
    posted_.push_back(posted);
    while (place > 0) {
      const size_t parent = (place - 1) / kChildren;
      if (!(posted < posted_[parent])) break;
      posted_[place] = posted_[parent];
      place = parent;
    }
    posted_[place] = posted;
  }

  // Null when nothing is posted.
  const Posted* First() const {
    if (ahead_.empty()) return posted_.empty() ? nullptr : &posted_.front();
    return posted_.empty() || ahead_.back() < posted_.front() ? &ahead_.back() : &posted_.front();
  }

  // Requires: something is posted.
  Posted Pop() {
    const Posted first = *First();
    if (!ahead_.empty() && first.number == ahead_.back().number) {
      ahead_.pop_back();
      return first;
    }
    const Posted last = posted_.back();
    posted_.pop_back();
    const size_t size = posted_.size();
    if (size == 0) return first;
    size_t place = 0;
    for (size_t child = 1; child < size; child = place * kChildren + 1) {
      const size_t end = std::min(child + kChildren, size);
      size_t least = child;
      for (size_t other = child + 1; other < end; ++other) {
        if (posted_[other] < posted_[least]) least = other;
      }
      if (!(posted_[least] < last)) break;
      posted_[place] = posted_[least];
      place = least;
    }
    posted_[place] = last;
    return first;
  }

  void Place(Timer* timer) {
    timer->place_at_ = timer->at_;
    timer->place_number_ = timer->number_;
    Push({timer->at_, timer->number_, kOfTimer, timer});
  }

  // Whether the timer is due at this place; else it was put off, or has another place by now.
  bool IsDue(const Posted& place) {
    Timer* const timer = static_cast<Timer*>(place.receiver);
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
  std::vector<Posted> ahead_;   // of PostAll, the next one last
  std::deque<Call> calls_;
  std::vector<size_t> free_;  // of calls_
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_EVENT_QUEUE_H_
