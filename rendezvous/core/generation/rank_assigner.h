#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_RANK_ASSIGNER_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_RANK_ASSIGNER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/identifiers.h"

namespace ddprun::rendezvous {

// A node that could be part of the next generation.
struct Candidate {
  NodeId node_id;
  uint64_t join_order = 0;        // unique
  std::optional<uint32_t> claim;  // unique among candidates
  bool hosts_endpoint = false;
};

// Chooses `wanted` of the candidates and orders them by group rank (R2):
//   Choice: survivors of the last generation first, then newcomers with a claim, the endpoint's
//   host, and the others in join order.
//   Rank: a claim is the group rank; claims beyond the world keep their order. While the world
//   doesn't shrink, survivors keep their slots, and newcomers take the vacant ones from below (the
//   endpoint's host first, then in join order). When the world shrinks, survivors close up in their
//   old order, and newcomers come last.
// Params: previous: node ids of the last generation by group rank, lost ones included; empty =
// none. Requires: wanted <= candidates.size(); node ids, join orders and claims are unique.
// Returns: indices into `candidates` by group rank. O(n log n). Pure.
std::vector<size_t> AssignRanks(const std::vector<NodeId>& previous,
                                const std::vector<Candidate>& candidates, size_t wanted);

// What one node brings into a generation.
struct Share {
  uint32_t worker_count = 0;
  std::string role;
};

struct Placement {
  uint32_t base_rank = 0;
  uint32_t base_role_rank = 0;
  uint32_t role_world_size = 0;
};

// Ranks of the nodes' first workers: prefix sums over the nodes, and over those of the same role,
// as torchrun counts RANK and ROLE_RANK. Pure.
std::vector<Placement> PlaceWorkers(const std::vector<Share>& shares_by_group_rank);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_RANK_ASSIGNER_H_
