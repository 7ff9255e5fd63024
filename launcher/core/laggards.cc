#include "launcher/core/laggards.h"

#include <algorithm>

namespace ddprun::launcher {

void Laggards::Begin(uint32_t worker_count) {
  *this = Laggards();
  runs_.assign(worker_count, true);
}

void Laggards::OnEnded(Instant now, uint32_t local_rank, bool well) {
  if (!well) return Stop();
  if (local_rank >= runs_.size()) return;
  runs_[local_rank] = false;
  const auto left = static_cast<size_t>(std::count(runs_.begin(), runs_.end(), true));
  const bool names = left > 0 && (named_ == 0 || (named_ > 1 && left == 1));
  due_ = names ? now + kLaggardsAfter : Instant::Infinite();
}

void Laggards::Stop() {
  runs_.clear();
  due_ = Instant::Infinite();
}

std::vector<uint32_t> Laggards::OnTimer(Instant now) {
  if (now < due_) return {};
  due_ = Instant::Infinite();
  std::vector<uint32_t> ranks;
  for (uint32_t i = 0; i < runs_.size(); ++i) {
    if (runs_[i]) ranks.push_back(i);
  }
  named_ = ranks.size();
  return ranks;
}

}  // namespace ddprun::launcher
