#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_SILENCE_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_SILENCE_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/members/node_table.h"

// How long a job waits for a member of a running generation that was silent for its lease: silence
// is a suspicion, not a proof (R4). Pure functions.
namespace ddprun::rendezvous {

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
