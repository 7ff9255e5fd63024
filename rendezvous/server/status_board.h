#ifndef DDPRUN_RENDEZVOUS_SERVER_STATUS_BOARD_H_
#define DDPRUN_RENDEZVOUS_SERVER_STATUS_BOARD_H_

#include <memory>
#include <mutex>

#include "absl/time/time.h"
#include "base/instant.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"

namespace ddprun::rendezvous {

// The latest status of all jobs, for every caller that asks while it is fresh, without the loop. A
// status that took less than kQuick to make is never reused. Any other is fresh for kShare times
// the time that making it took, at most kAgeMax: so a large job loses little time to frequent
// calls. Threads: any.
class StatusBoard {
 public:
  static constexpr absl::Duration kAgeMax = absl::Milliseconds(500);
  static constexpr int kShare = 50;
  static constexpr absl::Duration kQuick = absl::Milliseconds(1);

  using Snapshot = std::shared_ptr<const v1::GetStatusReply>;

  // Returns null if there is no status, or it is too old.
  Snapshot Fresh(Instant now) const;
  // Params: cost: the processor time that making it took.
  void Put(Snapshot snapshot, Instant now, absl::Duration cost);

 private:
  mutable std::mutex mutex_;
  Snapshot snapshot_;  // nullptr before the first
  Instant until_;      // end of its freshness
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_STATUS_BOARD_H_
