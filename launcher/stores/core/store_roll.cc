#include "launcher/stores/core/store_roll.h"

#include <algorithm>
#include <utility>

namespace ddprun::launcher {

void StoreRoll::Begin(uint32_t world, uint32_t here) {
  *this = StoreRoll();
  world_ = world;
  here_ = here;
}

void StoreRoll::OnLocal(Instant now, uint32_t local_rank) {
  first_ = std::min(first_, now);
  came_.insert(local_rank);
}

void StoreRoll::OnRemote(Instant now, std::string name) {
  first_ = std::min(first_, now);
  if (remote_.size() < world_) remote_.insert(std::move(name));
}

StoreRoll::Missing StoreRoll::Absent() const {
  Missing missing;
  for (uint32_t i = 0; i < here_; ++i) {
    if (!came_.contains(i)) missing.local_ranks.push_back(i);
  }
  const uint32_t others = world_ - here_;
  missing.elsewhere = others - std::min(others, static_cast<uint32_t>(remote_.size()));
  return missing;
}

Instant StoreRoll::Deadline() const {
  if (told_ || first_.is_infinite() || !Absent().any()) return Instant::Infinite();
  return first_ + kMissingAfter;
}

StoreRoll::Missing StoreRoll::OnTimer(Instant now) {
  if (now < Deadline()) return {};
  told_ = true;
  return Absent();
}

}  // namespace ddprun::launcher
