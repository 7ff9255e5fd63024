#include "rendezvous/core/members/isolation.h"

#include <cstdint>

#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

bool HearsNobody(const NodeTable::Nodes& nodes, Instant now, absl::Duration lease) {
  uint32_t silent = 0;
  bool hears_own_host = false;
  for (const auto& [order, node] : nodes) {
    const bool heard = now - node.heard <= lease / 2;
    if (heard && !node.info.hosts_service) return false;
    heard ? hears_own_host = true : ++silent;
  }
  return silent >= (hears_own_host ? 2 : 1);
}

bool Isolation::Holds(Instant now, bool hears_nobody) {
  if (!hears_nobody) return false;
  if (!open()) since_ = now;
  return now < since_ + kIsolationMax;
}

}  // namespace ddprun::rendezvous
