#include "rendezvous/core/generation/rank_assigner.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kNewcomer = SIZE_MAX;

// One candidate that takes part.
struct Pick {
  size_t index = 0;             // into the candidates
  size_t old_slot = kNewcomer;  // group rank in the last generation
  const Candidate* candidate = nullptr;
};

using Slots = std::vector<std::optional<size_t>>;

std::vector<Pick> ChooseMembers(const std::vector<NodeId>& previous,
                                const std::vector<Candidate>& candidates, size_t wanted) {
  absl::flat_hash_map<std::string, size_t> old_slots;
  for (size_t slot = 0; slot < previous.size(); ++slot) {
    old_slots.emplace(previous[slot].value(), slot);
  }
  std::vector<Pick> picks;
  picks.reserve(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto found = old_slots.find(candidates[i].node_id.value());
    picks.push_back({.index = i,
                     .old_slot = found == old_slots.end() ? kNewcomer : found->second,
                     .candidate = &candidates[i]});
  }
  const auto key = [](const Pick& pick) {
    return std::make_tuple(pick.old_slot, !pick.candidate->claim.has_value(),
                           !pick.candidate->hosts_endpoint, pick.candidate->join_order);
  };
  std::sort(picks.begin(), picks.end(),
            [&](const Pick& a, const Pick& b) { return key(a) < key(b); });
  picks.resize(wanted);
  return picks;
}

// A claim is the slot. Claims beyond the world move down, keeping their order.
void PlaceClaims(const std::vector<Pick>& picks, Slots& slots) {
  std::map<uint32_t, size_t> by_claim;
  for (const Pick& pick : picks) {
    if (!pick.candidate->claim) continue;
    const bool unique = by_claim.emplace(*pick.candidate->claim, pick.index).second;
    DDPRUN_CHECK(unique, "two candidates with one claim");
  }
  size_t end = slots.size();
  for (auto it = by_claim.rbegin(); it != by_claim.rend(); ++it) {
    end = std::min<size_t>(it->first, end - 1);
    slots[end] = it->second;
  }
}

void PlaceSurvivors(const std::vector<Pick>& survivors, size_t previous_count, Slots& slots) {
  const bool keep = slots.size() >= previous_count &&
                    std::all_of(survivors.begin(), survivors.end(), [&](const Pick& survivor) {
                      return !slots[survivor.old_slot].has_value();
                    });
  size_t free = 0;
  for (const Pick& survivor : survivors) {
    if (keep) {
      slots[survivor.old_slot] = survivor.index;
      continue;
    }
    while (slots[free]) ++free;
    slots[free] = survivor.index;
  }
}

}  // namespace

std::vector<size_t> AssignRanks(const std::vector<NodeId>& previous,
                                const std::vector<Candidate>& candidates, size_t wanted) {
  DDPRUN_CHECK(wanted <= candidates.size(), "more ranks wanted than nodes are there");
  const std::vector<Pick> picks = ChooseMembers(previous, candidates, wanted);
  Slots slots(wanted);
  PlaceClaims(picks, slots);

  std::vector<Pick> survivors;
  std::vector<Pick> newcomers;
  for (const Pick& pick : picks) {
    if (pick.candidate->claim) continue;
    (pick.old_slot == kNewcomer ? newcomers : survivors).push_back(pick);
  }
  PlaceSurvivors(survivors, previous.size(), slots);
  size_t free = 0;
  for (const Pick& newcomer : newcomers) {  // already in the order of host, then join
    while (slots[free]) ++free;
    slots[free] = newcomer.index;
  }

  std::vector<size_t> order;
  order.reserve(wanted);
  for (const std::optional<size_t>& slot : slots) {
    DDPRUN_CHECK(slot.has_value(), "a slot without a node");
    order.push_back(*slot);
  }
  return order;
}

std::vector<Placement> PlaceWorkers(const std::vector<Share>& shares_by_group_rank) {
  std::vector<Placement> placements;
  placements.reserve(shares_by_group_rank.size());
  absl::flat_hash_map<std::string, uint32_t> role_sizes;
  uint32_t world = 0;
  for (const Share& share : shares_by_group_rank) {
    uint32_t& role_size = role_sizes[share.role];
    placements.push_back({.base_rank = world, .base_role_rank = role_size});
    world += share.worker_count;
    role_size += share.worker_count;
  }
  for (size_t i = 0; i < placements.size(); ++i) {
    placements[i].role_world_size = role_sizes[shares_by_group_rank[i].role];
  }
  return placements;
}

}  // namespace ddprun::rendezvous
