#ifndef DDPRUN_RENDEZVOUS_SERVER_EVENT_WATCH_H_
#define DDPRUN_RENDEZVOUS_SERVER_EVENT_WATCH_H_

#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/instant.h"
#include "ddprun/rendezvous/v1/status.pb.h"
#include "rendezvous/core/events.h"
#include "rendezvous/server/call_registry.h"

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

// Serves one `ddprun events`: sends a job's events from its ring, as many at a time as there are,
// and the next ones when gRPC has taken the last: a slow reader delays no other, and costs one
// message.
//
// gRPC's threads run the reactions, which only post; everything else is the loop's. Life: made in a
// thread of gRPC's; holds itself until OnDone.
class EventWatch final : public grpc::ServerWriteReactor<v1::JobEvents>,
                         public OpenStream,
                         public std::enable_shared_from_this<EventWatch> {
 public:
  // The loop's side, on the loop.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Followed by Begin() or FinishNow().
    virtual void OnWatchEvents(const v1::WatchEventsRequest& request, const std::string& peer,
                               const std::shared_ptr<EventWatch>& watch) = 0;
  };

  // Called by gRPC for a new call. The watch lives on its own.
  // Threads: any.
  static EventWatch* Create(Owner* owner, std::shared_ptr<LoopInbox> inbox,
                            std::shared_ptr<CallRegistry> registry,
                            const v1::WatchEventsRequest& request, const Caller& caller);

  // Sends the events of `ring` after the number `after` and, with `follow`, later ones. Requires:
  // called once.
  void Begin(const std::string& run_id, std::shared_ptr<EventRing> ring, uint64_t after,
             bool follow);
  void FinishNow(const absl::Status& status) override;

 private:
  EventWatch(std::shared_ptr<LoopInbox> inbox, std::shared_ptr<CallRegistry> registry)
      : inbox_(std::move(inbox)), registry_(std::move(registry)) {}

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void Advance();
  bool Collect();

  const std::shared_ptr<LoopInbox> inbox_;
  const std::shared_ptr<CallRegistry> registry_;
  std::shared_ptr<EventWatch> self_;  // until OnDone

  // The fields below are the loop's.
  std::shared_ptr<EventRing> ring_;
  uint64_t subscription_ = 0;
  uint64_t sent_ = 0;  // number of the last event
  bool follow_ = false;
  bool writing_ = false;
  bool finished_ = false;
  v1::JobEvents message_;  // gRPC's while writing_
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_EVENT_WATCH_H_
