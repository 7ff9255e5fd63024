#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_NEXT_ROUND_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_NEXT_ROUND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/failures/node_blame.h"
#include "rendezvous/core/generation/round.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/members/roster.h"

namespace ddprun::rendezvous {

// The members of the next generation, and the nodes that are left out of it.
struct Choice {
  struct LeftOut {
    const Node* node;
    uint32_t failures;  // for which it is in quarantine
  };
  std::vector<const Node*> ranked;  // by group rank
  std::vector<LeftOut> left_out;    // in join order
};

// Chooses among the candidates. Nodes in quarantine take part only if the others are too few: for
// the places that there are, or, with quarantine_shrinks, for nodes_min (R2).
// Params: previous: node ids of the last generation by group rank. Pure; O(n log n).
Choice ChooseNodes(const JobSpec& spec, const Roster& roster, const NodeBlame& blame,
                   const std::vector<NodeId>& previous, Instant now);

// The members with their ranks. Requires: at least one node.
std::vector<RoundMember> PlaceNodes(const std::vector<const Node*>& ranked);

// The candidates that a running generation could take in; with quarantine_shrinks, without those in
// quarantine.
struct Newcomers {
  uint32_t present = 0;
  uint32_t answering = 0;  // those that have answered a probe; a generation ends only for these
};
// Pure; O(log n).
Newcomers CountNewcomers(const JobSpec& spec, const Roster& roster, const NodeBlame& blame,
                         Instant now);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_NEXT_ROUND_H_
