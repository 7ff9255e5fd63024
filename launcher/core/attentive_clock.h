#ifndef DDPRUN_LAUNCHER_CORE_ATTENTIVE_CLOCK_H_
#define DDPRUN_LAUNCHER_CORE_ATTENTIVE_CLOCK_H_

#include <utility>

#include "absl/time/time.h"
#include "base/held_up.h"
#include "base/instant.h"

namespace ddprun::launcher {

// The time for bounds on what others do. It leaves out the time in which this process was held up
// itself (stopped, its machine paused or out of memory) and could not see what they did, as R4 has
// it of the service's bounds. Not for what is due by somebody else's clock: a job's time limit, a
// lease in etcd.
//
// Who uses it asks to be called by Wake(), and reads it at each call. A call that comes much later
// than it was asked for shows that the process was held up. Then the clock stands still just before
// what was due, for long enough to read what came meanwhile. So it is late by the time that was
// lost and kHearing. A machine that is always late makes it slower, but doesn't stop it.
//
//   runs ─Read, over kHeldUp after it was asked for─► stands for kHearing ─► runs, later
//
// Pure; one thread.
//
// One clock for all bounds, instead of extending each: eight parts have bounds, and the next one
// would be forgotten. CLOCK_MONOTONIC alone counts a SIGSTOP and a frozen cgroup.
class AttentiveClock {
 public:
  // How long what came meanwhile may take to be read, and what stood still with us to go on.
  static constexpr absl::Duration kHearing = absl::Seconds(1);
  // The longest time between two calls while something is bounded: what is lost of it may count.
  static constexpr absl::Duration kTick = absl::Seconds(1);

  explicit AttentiveClock(Instant now) : real_(now), time_(now) {}

  // Its time at `now`. Neither ever goes back. Params: asked: what Wake() gave after the last call
  // (or an earlier time that the caller wanted to be called at).
  Instant Read(Instant now, Instant asked);
  // The same, for who only looks.
  Instant At(Instant now) const;
  // When, in real time, to be called for what is due at `bound` of this clock; infinite: not at
  // all.
  Instant Wake(Instant bound) const;
  // For how long a hold-up lasted that was found since it was last asked; zero = there was none.
  absl::Duration TakeStall() { return std::exchange(stall_, absl::ZeroDuration()); }

 private:
  Instant real_;                      // of the last call
  Instant time_;                      // what it showed then; at least real_ - behind_
  absl::Duration behind_;             // real time; never less than before
  Instant stands_until_ = Instant();  // in real time
  absl::Duration stall_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_ATTENTIVE_CLOCK_H_
