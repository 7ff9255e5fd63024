#include "rendezvous/server/status_board.h"

#include <algorithm>
#include <utility>

namespace ddprun::rendezvous {

StatusBoard::Snapshot StatusBoard::Fresh(Instant now) const {
  const std::lock_guard lock(mutex_);
  return now < until_ ? snapshot_ : nullptr;
}

void StatusBoard::Put(Snapshot snapshot, Instant now, absl::Duration cost) {
  const std::lock_guard lock(mutex_);
  snapshot_ = std::move(snapshot);
  until_ = cost < kQuick ? now : now + std::min(kShare * cost, kAgeMax);
}

}  // namespace ddprun::rendezvous
