#include "rendezvous/core/generation/next_round.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "rendezvous/core/generation/rank_assigner.h"

namespace ddprun::rendezvous {

Choice ChooseNodes(const JobSpec& spec, const Roster& roster, const NodeBlame& blame,
                   const std::vector<NodeId>& previous, Instant now) {
  std::vector<const Node*> present;
  std::vector<std::optional<uint32_t>> failures;
  for (const auto& [order, node] : roster.nodes()) {
    if (!node.counted) continue;
    present.push_back(&node);
    failures.push_back(blame.Quarantined(node.id, now) ? std::optional(blame.Count(node.id, now))
                                                       : std::nullopt);
  }
  DDPRUN_CHECK(present.size() == roster.candidates(), "the number of candidates is wrong");
  Choice choice;
  std::vector<Candidate> candidates;
  const uint32_t full = std::min(roster.candidates(), spec.nodes_max);
  const uint32_t least = spec.restart.quarantine_shrinks ? spec.nodes_min : full;
  for (const size_t index : LeaveOut(failures, least)) {
    const Node& node = *present[index];
    candidates.push_back({.node_id = node.id,
                          .join_order = node.order,
                          .claim = node.info.node_rank,
                          .hosts_endpoint = node.info.hosts_endpoint});
    failures[index].reset();
  }
  for (size_t i = 0; i < present.size(); ++i) {
    if (failures[i]) choice.left_out.push_back({present[i], *failures[i]});
  }
  const size_t wanted = std::min<size_t>(candidates.size(), spec.nodes_max);
  for (const size_t index : AssignRanks(previous, candidates, wanted)) {
    choice.ranked.push_back(roster.table().FindByOrder(candidates[index].join_order));
  }
  return choice;
}

std::vector<RoundMember> PlaceNodes(const std::vector<const Node*>& ranked) {
  DDPRUN_CHECK(!ranked.empty(), "a generation without nodes");
  std::vector<Share> shares;
  shares.reserve(ranked.size());
  for (const Node* node : ranked) shares.push_back({node->info.worker_count, node->info.role});
  const std::vector<Placement> placements = PlaceWorkers(shares);
  std::vector<RoundMember> members(ranked.size());
  for (size_t i = 0; i < ranked.size(); ++i) {
    members[i].node_order = ranked[i]->order;
    members[i].node_id = ranked[i]->id;
    members[i].worker_count = ranked[i]->info.worker_count;
    members[i].placement = placements[i];
  }
  return members;
}

Newcomers CountNewcomers(const JobSpec& spec, const Roster& roster, const NodeBlame& blame,
                         Instant now) {
  Newcomers count{.present = roster.candidates(), .answering = roster.answering()};
  if (!spec.restart.quarantine_shrinks) return count;
  for (const NodeId& id : blame.QuarantinedNodes(now)) {
    const Node* node = roster.table().FindById(id);
    if (node == nullptr || !node->counted) continue;
    DDPRUN_CHECK(count.present > 0, id.value());
    --count.present;
    if (node->answered) --count.answering;
  }
  return count;
}

}  // namespace ddprun::rendezvous
