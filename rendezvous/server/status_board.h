#ifndef DDPRUN_RENDEZVOUS_SERVER_STATUS_BOARD_H_
#define DDPRUN_RENDEZVOUS_SERVER_STATUS_BOARD_H_

#include <memory>
#include <mutex>

#include "absl/time/time.h"
#include "base/instant.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"

namespace ddprun::rendezvous {

// The last status of all jobs, for everybody who asks while it is new, without the loop. One that
// was quickly made is new for no time. Else it is so for fifty times what making it took, at most
// 500 ms: so whoever asks how often, large jobs lose little time to it. Threads: any.
class StatusBoard {
 public:
  static constexpr absl::Duration kAgeMax = absl::Milliseconds(500);
  static constexpr int kShare = 50;
  static constexpr absl::Duration kQuick = absl::Milliseconds(1);

  using Snapshot = std::shared_ptr<const v1::GetStatusReply>;

  // nullptr: there is none, or it is too old.
  Snapshot Fresh(Instant now) const;
  // Params: cost: time of the processor that making it took, just now.
  void Put(Snapshot snapshot, Instant now, absl::Duration cost);

 private:
  mutable std::mutex mutex_;
  Snapshot snapshot_;  // nullptr before the first
  Instant until_;      // it is new until then
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_STATUS_BOARD_H_
