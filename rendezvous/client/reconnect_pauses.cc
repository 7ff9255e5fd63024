#include "rendezvous/client/reconnect_pauses.h"

#include <algorithm>

namespace ddprun::rendezvous {

ReconnectPauses::ReconnectPauses(ReconnectSettings settings, uint64_t seed, Instant now)
    : settings_(settings), rng_(seed), began_(now), next_(settings.first) {}

absl::Duration ReconnectPauses::AfterStream() {
  had_stream_ = true;
  next_ = settings_.first;
  return settings_.first * static_cast<int64_t>(rng_.Below(100)) / 100;
}

absl::Duration ReconnectPauses::AfterFailure(Instant now) {
  const auto percent = static_cast<int64_t>(80 + rng_.Below(21));
  const absl::Duration pause = std::min(next_, Longest(now)) * percent / 100;
  next_ = std::min(2 * next_, Longest(now));
  return pause;
}

absl::Duration ReconnectPauses::Longest(Instant now) const {
  if (!had_stream_ && now - began_ >= settings_.soon) return settings_.longest;
  return std::min(settings_.longest_again, settings_.longest);
}

std::string ReconnectPauses::BrokenInvariant() const {
  if (next_ < std::min(settings_.first, settings_.longest) ||
      next_ > std::max(settings_.first, settings_.longest)) {
    return "a pause beyond its bounds";
  }
  return "";
}

}  // namespace ddprun::rendezvous
