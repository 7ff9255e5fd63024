#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_NEXT_ROUND_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_NEXT_ROUND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/failures/node_blame.h"
#include "rendezvous/core/generation/round.h"
#include "rendezvous/core/members/roster.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// Who is in the next generation, and who is not though it could be.
struct Choice {
  struct LeftOut {
    const Node* node;
    uint32_t failures;  // that it is in quarantine for
  };
  std::vector<const Node*> ranked;  // by group rank
  std::vector<LeftOut> left_out;    // in join order
};

// Chooses among the candidates: those in quarantine only as far as the others can't take their
// places, or with quarantine_shrinks as far as the others don't suffice (R2).
// Params: previous: node ids of the last generation by group rank. Pure; O(n log n).
Choice ChooseNodes(const JobSpec& spec, const Roster& roster, const NodeBlame& blame,
                   const std::vector<NodeId>& previous, Instant now);

// Their places in it. Requires: at least one node.
std::vector<RoundMember> PlaceNodes(const std::vector<const Node*>& ranked);

// The candidates that a running generation could take in: with quarantine_shrinks not those in
// quarantine.
struct Newcomers {
  uint32_t present = 0;
  uint32_t answering = 0;  // of them, who has answered a probe: for these a generation ends
};
// Pure; O(log n).
Newcomers CountNewcomers(const JobSpec& spec, const Roster& roster, const NodeBlame& blame,
                         Instant now);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_NEXT_ROUND_H_
