#ifndef DDPRUN_BASE_INSTANT_H_
#define DDPRUN_BASE_INSTANT_H_

#include <compare>
#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace ddprun {

// A point on a monotonic clock, in nanoseconds since an arbitrary origin (CLOCK_MONOTONIC in
// production, zero in simulations). Instants of two machines can't be compared. A sum beyond the
// last instant is infinite, because durations may come from users and peers.
class Instant {
 public:
  constexpr Instant() = default;
  static constexpr Instant FromNanoseconds(int64_t ns) { return Instant(ns); }
  // Later than every other instant; "never" for deadlines.
  static constexpr Instant Infinite() { return Instant(INT64_MAX); }

  constexpr int64_t nanoseconds() const { return ns_; }
  constexpr bool is_infinite() const { return ns_ == INT64_MAX; }

  friend constexpr auto operator<=>(Instant, Instant) = default;
  friend Instant operator+(Instant at, absl::Duration d);
  friend Instant operator-(Instant at, absl::Duration d);
  friend absl::Duration operator-(Instant a, Instant b);

 private:
  constexpr explicit Instant(int64_t ns) : ns_(ns) {}
  int64_t ns_ = 0;
};

// Seconds since the origin with three decimals: "12.345s"; "never" when infinite.
std::string ToString(Instant at);

// A timer that fires later than this means that the process itself was held up: it was stopped, or
// its machine paused or ran out of memory. A machine that is only busy doesn't delay a process for
// so long. Messages may have arrived unread meanwhile, so the silence of others proves nothing
// (docs/PROTOCOL.md R4).
inline constexpr absl::Duration kHeldUp = absl::Milliseconds(250);

}  // namespace ddprun

#endif  // DDPRUN_BASE_INSTANT_H_
