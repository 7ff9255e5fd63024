#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_SILENCE_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_SILENCE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/members/node.h"
#include "rendezvous/core/members/node_table.h"

namespace ddprun::rendezvous {

// Whether so many nodes are silent at once that the service itself is probably cut off, while the
// workers go on (R4). The node that hosts the service is no evidence, because its messages cross no
// network. If it is heard, two others must be silent, because a single one is as likely to have
// died.
// Params: lease: of the job; a node that was silent for half of it counts as silent.
bool HearsNobody(const NodeTable::Nodes& nodes, Instant now, absl::Duration lease);

// How long leases aren't judged because no node is heard. Pure.
//
//   connected ─Holds: no node is heard─► isolated ─Close─► connected
class Isolation {
 public:
  // Whether an expired lease doesn't count for now: no node is heard, and the isolation isn't too
  // long.
  bool Holds(Instant now, bool hears_nobody);
  // A node is heard again, or no generation runs that could be kept.
  void Close() { since_ = Instant::Infinite(); }

  bool open() const { return !since_.is_infinite(); }
  // The time of the first lease that wasn't judged; infinite = the service isn't isolated.
  Instant since() const { return since_; }

 private:
  Instant since_ = Instant::Infinite();  // <= now, or infinite
};

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

// How long a job waits for a member of a running generation that was silent for its lease: silence
// is a suspicion, not a proof (R4). Pure functions.

// One silent member, and the cost of going on without it.
struct SilenceInput {
  Instant now;
  Instant since;                // when it was last heard
  uint32_t others = 0;          // nodes that a generation without the silent ones could have
  bool is_replaced = false;     // another agent has taken its place
  bool is_likely_gone = false;  // its service ended as well (R10)
  absl::Duration loss;          // upper bound of what a restart would cost the job
};

struct SilenceDecision {
  enum class Why {
    kLease,     // the user chose the lease, so silence isn't tolerated beyond it
    kReplaced,  // another agent has its claim, or comes from its machine
    kNeeded,    // the others are too few, so stopping them gains nothing
    kCheaper,   // a restart without it would cost more than the wait so far
  };
  bool is_lost = false;
  Instant until;  // end of the wait, if nothing happens before; > now unless lost
  Why why = Why::kLease;
};

// If the others are too few without the member, the job waits as for a missing node: for the join
// timeout. Otherwise the expected loss bounds the wait: a job that waits as long as the loss would
// cost pays at most twice the cost of the better choice. kSilenceMax bounds it, too, because a
// program that saves without marking it would lose less than estimated.
SilenceDecision DecideSilence(const JobSpec& spec, const SilenceInput& input);

// Why the job waits for a member: "Waiting up to 15 s more, because a restart would lose as much".
// Params: left: of the wait.
std::string WaitText(const SilenceInput& input, uint32_t nodes_min, absl::Duration left);

// The number of nodes that could be in a generation without the silent ones: heard within half a
// lease, with a stream, not leaving, and, if without a rank, able to start at once.
uint32_t CountOthers(const NodeTable::Nodes& nodes, Instant now, absl::Duration lease);

// Whether another agent has taken the silent node's place: it waits for the same claim, or has
// joined from the same machine since, and has answered a probe. The network reaches that agent, so
// the silence is the node's own.
bool IsReplaced(const Node& silent, const NodeTable::Nodes& nodes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_SILENCE_H_
