#ifndef DDPRUN_RENDEZVOUS_SERVER_EVENT_RING_H_
#define DDPRUN_RENDEZVOUS_SERVER_EVENT_RING_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/events.h"

namespace ddprun::rendezvous {

// The latest notes of one job, for `ddprun events`, numbered from 1. A reader goes at its own pace,
// and sees a gap in the numbers if it was too slow. Threads: the loop's.
class EventRing {
 public:
  struct Entry {
    uint64_t number = 0;
    absl::Time wall_time;  // for display
    Instant time;
    Note note;
  };

  EventRing() = default;
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;

  void Add(Instant now, absl::Time wall_time, const Note& note);
  // The job is over, so no note follows.
  void Close();
  bool closed() const { return closed_; }
  // The number of the newest entry; 0 = there was none.
  uint64_t last() const { return last_; }
  // The oldest entry with a larger number; null = there is none so far. Valid until the next Add().
  const Entry* After(uint64_t number) const;

  // Calls `listener` after each Add() and at Close(). The listener may unsubscribe itself and
  // others.
  uint64_t Subscribe(std::function<void()> listener);
  void Unsubscribe(uint64_t subscription) { listeners_.erase(subscription); }

 private:
  void NotifyListeners();

  std::deque<Entry> entries_;
  size_t bytes_ = 0;
  uint64_t last_ = 0;
  bool closed_ = false;
  uint64_t last_subscription_ = 0;
  std::map<uint64_t, std::function<void()>> listeners_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_EVENT_RING_H_
