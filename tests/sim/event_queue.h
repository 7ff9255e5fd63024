#ifndef DDPRUN_TESTS_SIM_EVENT_QUEUE_H_
#define DDPRUN_TESTS_SIM_EVENT_QUEUE_H_

#include <algorithm>
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
  Instant now() const { return now_; }

  void At(Instant at, Call call) {
    calls_.push_back({std::max(at, now_), next_++, std::move(call)});
    std::push_heap(calls_.begin(), calls_.end(), IsLater);
  }
  void After(absl::Duration delay, Call call) { At(now_ + delay, std::move(call)); }

  // Makes the next call; false when there is none before `end`, to which time then moves.
  bool RunOne(Instant end) {
    if (calls_.empty() || calls_.front().at > end) {
      now_ = end;
      return false;
    }
    std::pop_heap(calls_.begin(), calls_.end(), IsLater);
    Posted next = std::move(calls_.back());
    calls_.pop_back();
    now_ = next.at;
    next.call();
    return true;
  }

 private:
  struct Posted {
    Instant at;
    uint64_t number;
    Call call;
  };

  static bool IsLater(const Posted& a, const Posted& b) {
    return a.at != b.at ? a.at > b.at : a.number > b.number;
  }

  Instant now_;
  uint64_t next_ = 0;
  std::vector<Posted> calls_;  // a heap, the next one first
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_EVENT_QUEUE_H_
