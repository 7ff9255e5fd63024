#ifndef DDPRUN_LAUNCHER_CORE_LAGGARDS_H_
#define DDPRUN_LAUNCHER_CORE_LAGGARDS_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::launcher {

// The workers of a generation on this node that still run when others have ended well: a thread
// that nobody joins keeps a trained process alive for good, and nothing fails. They are to be named
// when no worker of the node has ended for kLaggardsAfter; once more if one alone is left of
// several. A worker that evaluates or uploads for an hour is named, too, so nothing may be
// concluded from it. Pure; one thread.
class Laggards {
 public:
  static constexpr absl::Duration kLaggardsAfter = absl::Seconds(30);

  // A generation begins.
  void Begin(uint32_t worker_count);
  // A worker has ended; otherwise than with 0: nobody is named in this generation any more.
  void OnEnded(Instant now, uint32_t local_rank, bool well);
  // The workers are being stopped.
  void Stop();
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const { return due_; }
  // Local ranks that are to be named now.
  std::vector<uint32_t> OnTimer(Instant now);

 private:
  std::vector<bool> runs_;  // by local rank; empty = no generation, or it is stopped
  size_t named_ = 0;        // how many were named last; 0 = none yet
  Instant due_ = Instant::Infinite();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_LAGGARDS_H_
