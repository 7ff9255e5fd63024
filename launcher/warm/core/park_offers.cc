#include "launcher/warm/core/park_offers.h"

namespace ddprun::launcher {

void ParkOffers::OnPrepared(uint32_t local_rank) {
  started_.erase(local_rank);
  early_.erase(local_rank);
}

std::optional<int32_t> ParkOffers::OnStarted(uint32_t local_rank, int32_t pid) {
  started_[local_rank] = pid;
  if (early_.erase(local_rank) == 0) return std::nullopt;
  return pid;
}

std::optional<int32_t> ParkOffers::OnOffered(uint32_t local_rank) {
  const auto found = started_.find(local_rank);
  if (found != started_.end()) return found->second;
  early_.insert(local_rank);
  return std::nullopt;
}

}  // namespace ddprun::launcher
