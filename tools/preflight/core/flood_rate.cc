#include "tools/preflight/core/flood_rate.h"

#include <algorithm>

#include "absl/time/time.h"
#include "base/check.h"

namespace ddprun::launcher {
namespace {

// The least time that clock and kernel can measure here.
constexpr absl::Duration kTickMin = absl::Microseconds(20);

}  // namespace

void FloodRate::Add(Instant now, size_t bytes) {
  DDPRUN_CHECK(bytes > 0, "a read of nothing");
  DDPRUN_CHECK(now >= (reads_.empty() ? began_ : reads_.back().at), "time went back");
  reads_.push_back({.at = now, .until = this->bytes() + bytes});
}

double FloodRate::BitsPerSecond() const {
  DDPRUN_CHECK(!reads_.empty(), "a flood of nothing");
  const absl::Duration whole = std::max(reads_.back().at - began_, kTickMin);
  const size_t parts = std::min(kParts, reads_.size());
  std::vector<absl::Duration> took;
  Instant from = began_;
  auto read = reads_.begin();
  for (size_t part = 1; part <= parts; ++part) {
    while (read->until < bytes() * part / parts) ++read;
    took.push_back(read->at - from);
    from = read->at;
  }
  std::nth_element(took.begin(), took.begin() + static_cast<ptrdiff_t>(parts / 2), took.end());
  const absl::Duration usual = std::max(took[parts / 2] * static_cast<int64_t>(parts), kTickMin);
  return static_cast<double>(bytes()) * 8 / absl::ToDoubleSeconds(std::min(whole, usual));
}

}  // namespace ddprun::launcher
