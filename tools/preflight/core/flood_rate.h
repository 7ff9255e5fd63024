#ifndef DDPRUN_TOOLS_PREFLIGHT_CORE_FLOOD_RATE_H_
#define DDPRUN_TOOLS_PREFLIGHT_CORE_FLOOD_RATE_H_

#include <cstddef>
#include <vector>

#include "base/instant.h"

namespace ddprun::launcher {

// The rate at which a flood of bytes came through a link. The processes at its ends share their
// processors with others: on a quick link, one time slice of another process, some milliseconds, is
// longer than the whole flood. So the flood is cut into parts of equal size, and each part counts
// with the median of their times, unless the whole flood was quicker than that. Pure.
class FloodRate {
 public:
  static constexpr size_t kParts = 16;

  // Params: began: when the first byte arrived.
  explicit FloodRate(Instant began) : began_(began) {}
  // `bytes` were read at `now`. Requires: time doesn't go back; bytes > 0.
  void Add(Instant now, size_t bytes);

  size_t bytes() const { return reads_.empty() ? 0 : reads_.back().until; }
  // bit/s. Requires: bytes() > 0.
  double BitsPerSecond() const;

 private:
  struct Read {
    Instant at;
    size_t until;  // bytes that had been read by then, these included
  };

  Instant began_;
  std::vector<Read> reads_;  // in order
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_CORE_FLOOD_RATE_H_
