#ifndef DDPRUN_LAUNCHER_PREFLIGHT_CORE_FLOOD_RATE_H_
#define DDPRUN_LAUNCHER_PREFLIGHT_CORE_FLOOD_RATE_H_

#include <cstddef>
#include <vector>

#include "base/instant.h"

namespace ddprun::launcher {

// How fast a flood of bytes came through a link. The processes at its ends share their processors
// with others: on a quick link one turn of somebody else, some milliseconds, is longer than the
// whole flood. So the flood is looked at in parts of equal size, and what half of them took counts,
// unless the whole of it was quicker. Pure.
class FloodRate {
 public:
  static constexpr size_t kParts = 16;

  // Params: began: when its first byte was there.
  explicit FloodRate(Instant began) : began_(began) {}
  // So many bytes were read. Requires: time doesn't go back; bytes > 0.
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

#endif  // DDPRUN_LAUNCHER_PREFLIGHT_CORE_FLOOD_RATE_H_
