#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_LOSS_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_LOSS_H_

#include <string>

#include "absl/status/status.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/members/node.h"

namespace ddprun::rendezvous {

// How a loss is known (R3, R4, R6).
enum class LossProof {
  kStreamClosed,  // and not opened again within the grace
  kLeaseExpired,
  kUnclean,     // its workers didn't end cleanly and in time
  kSuperseded,  // another agent with the same node id has joined
};

// The texts about a loss.
struct Loss {
  // For programs: "stream closed", "lease expired", "unclean" or "a new agent took its place". If
  // the node was done, the note `node_left` has it after "done, "; a member that was done and is
  // missed later is noted as "done and gone".
  std::string why;
  absl::Status goodbye;  // for its open stream; OK if there is none
  absl::Status refusal;  // for later joins of this agent process; OK = it may come back
};

// Pure.
// Params: lease: that was in force.
Loss DescribeLoss(LossProof proof, const Node& node, const JobSpec& spec, absl::Duration lease);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_LOSS_H_
