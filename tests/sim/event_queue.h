#ifndef DDPRUN_TESTS_SIM_EVENT_QUEUE_H_
#define DDPRUN_TESTS_SIM_EVENT_QUEUE_H_

#include <functional>
#include <map>
#include <utility>

#include "base/instant.h"

namespace ddprun::sim {

// Simulated time: calls to be made at instants, in order of time and then of posting.
class EventQueue {
 public:
  Instant now() const { return now_; }

  void At(Instant at, std::function<void()> call) {
    calls_.emplace(std::make_pair(std::max(at, now_), next_++), std::move(call));
  }
  void After(absl::Duration delay, std::function<void()> call) {
    At(now_ + delay, std::move(call));
  }

  // Makes the next call; false when there is none before `end`, to which time then moves.
  bool RunOne(Instant end) {
    if (calls_.empty() || calls_.begin()->first.first > end) {
      now_ = end;
      return false;
    }
    auto node = calls_.extract(calls_.begin());
    now_ = node.key().first;
    node.mapped()();
    return true;
  }

 private:
  Instant now_;
  uint64_t next_ = 0;
  std::map<std::pair<Instant, uint64_t>, std::function<void()>> calls_;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_EVENT_QUEUE_H_
