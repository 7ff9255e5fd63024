#ifndef DDPRUN_LAUNCHER_CORE_LAGGARDS_H_
#define DDPRUN_LAUNCHER_CORE_LAGGARDS_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::launcher {

// The workers of a generation on this node that still run when others have ended well. A thread
// that is never joined keeps a trained process alive forever, without an error. Laggards are
// reported when no worker of the node has ended for kLaggardsAfter, and once more when one of
// several is left. A worker that evaluates or uploads for an hour is reported, too, so a report
// must have no effect. Pure; one thread.
class Laggards {
 public:
  static constexpr absl::Duration kLaggardsAfter = absl::Seconds(30);

  // A generation begins.
  void Begin(uint32_t worker_count);
  // A worker has ended. Unless `well`, no laggard of this generation is reported any more.
  void OnEnded(Instant now, uint32_t local_rank, bool well);
  // The workers are being stopped.
  void Stop();
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const { return due_; }
  // The local ranks to report now.
  std::vector<uint32_t> OnTimer(Instant now);

 private:
  std::vector<bool> runs_;  // by local rank; empty = no generation, or it is stopped
  size_t named_ = 0;        // how many were reported last; 0 = none so far
  Instant due_ = Instant::Infinite();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_LAGGARDS_H_
