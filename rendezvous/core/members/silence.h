#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_SILENCE_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_SILENCE_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/members/node_table.h"
#include "rendezvous/core/types.h"

// How long a member of a running generation is waited for that has been silent for its lease:
// silence is a suspicion, not a proof (R4). Pure functions.
namespace ddprun::rendezvous {

// One silent member, and what the job would do without it.
struct SilenceInput {
  Instant now;
  Instant since;                // it was heard for the last time
  uint32_t others = 0;          // nodes that a generation without the silent ones could have
  bool is_replaced = false;     // another agent is there for it
  bool is_likely_gone = false;  // its service ended, too (R10)
  absl::Duration loss;          // what a restart would cost the job, at most
};

struct SilenceDecision {
  enum class Why {
    kLease,     // the user chose the lease, and with it how long silence is borne
    kReplaced,  // another agent has its claim, or comes from its machine
    kNeeded,    // the others are too few: nothing is gained by stopping them
    kCheaper,   // the others could go on, and it would cost them more than the wait so far
  };
  bool is_lost = false;
  Instant until;  // waited for until then, if nothing happens before; > now unless lost
  Why why = Why::kLease;
};

// A member that nobody can do without is waited for as a missing one is, for the join timeout.
// Otherwise the wait is bounded by what the loss would cost: a job that waits as long as the loss
// would cost pays at most twice what the better of the two would have cost. kSilenceMax bounds it,
// too, because a program that saves without saying so has less to lose than it seems.
SilenceDecision DecideSilence(const JobSpec& spec, const SilenceInput& input);

// Why a member is waited for: "Waiting up to 15 s more, because a restart would lose as much".
// Params: left: of the wait.
std::string WaitText(const SilenceInput& input, uint32_t nodes_min, absl::Duration left);

// The nodes that could be in a generation without the silent ones: heard within half a lease, with
// a stream, not leaving; of those without a rank the ones that could start at once.
uint32_t CountOthers(const NodeTable::Nodes& nodes, Instant now, absl::Duration lease);

// Whether another agent is there for the silent node: it waits for the same claim, or has joined
// from the same machine since, and has answered a probe. The network reaches it, so the silence is
// the node's own.
bool IsReplaced(const Node& silent, const NodeTable::Nodes& nodes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_SILENCE_H_
