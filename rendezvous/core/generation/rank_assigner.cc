#include "rendezvous/core/generation/rank_assigner.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"

// Which nodes take part in the next generation, and their group ranks (R2).
//
// Goal: a node keeps its rank wherever the rules allow it, because its caches and per-rank files
// are on that node. The work is done in four passes over `wanted` slots, and a pass never moves
// what an earlier one has placed:
//   1. ChooseMembers   sort by (old slot, claim, endpoint's host, join order), keep the first
//   2. PlaceClaims     a claim (--node_rank) is the slot
//   3. PlaceSurvivors  members of the last generation keep their slots, or all close up
//   4. newcomers       take the free slots from the lowest up
//
// Examples; "c=2" is node c with claim 2, and candidates are named in join order:
//
//   previous  candidates    wanted  result   why
//   a b c     a c x         3       a x c    x takes the slot of b
//   a b       b x y         3       x b y    b keeps slot 1 although the world grows
//   a b c     c x           2       c x      the world shrinks: survivors first, in old order
//   -         a=1 b c       3       b a c    a claim is a slot, not a place in an order
//   -         a=3 b=0 c=2   3       b c a    claims beyond the world keep their order
//   a b c     a b c x=0     4       x a b c  a's slot is claimed, so all survivors close up
//
// PlaceClaims goes from the highest claim down, and lowers a claim only as far as those above it
// need: in the fifth row 3 becomes 2, so 2 becomes 1, and 0 stays. From the lowest up, 2 would take
// slot 2, and nothing would be left for 3. A slot is always found, because there are at most
// `wanted` claims.
//
// PlaceSurvivors is all or nothing. If only the survivor without its slot moved, then in the last
// row a would go to slot 3, behind b and c, and survivors would change their order.

namespace ddprun::rendezvous {
namespace {

// Sorts behind every slot of the last generation.
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

// Requires: `survivors` in the order of their old slots.
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
  for (const Pick& newcomer : newcomers) {  // ChooseMembers sorted them: host first, then by join
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

// Example: nodes with 2 workers of role "trainer", 1 of "reader" and 3 of "trainer" get the base
// ranks 0, 2, 3, the base role ranks 0, 0, 2, and the role's world sizes 5, 1, 5.
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
