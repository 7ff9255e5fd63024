#ifndef DDPRUN_LAUNCHER_PREFLIGHT_NETWORK_CHECK_H_
#define DDPRUN_LAUNCHER_PREFLIGHT_NETWORK_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "launcher/preflight/check_wire.h"
#include "launcher/preflight/meeting.h"

namespace ddprun::launcher {

// Which node a worker is, and where its job's store is: torchrun's variables.
struct CheckMember {
  uint32_t node = 0;                   // GROUP_RANK
  uint32_t nodes = 1;                  // GROUP_WORLD_SIZE
  uint32_t expected = 0;               // nodes that should have come; those that lack are told of
  std::optional<uint32_t> claim = {};  // of them, --node_rank
  std::string master_addr;
  uint16_t master_port = 0;
};

// The check of a job's network, as one process on each node. Node 0 leads: it collects, judges and
// says what to measure next (launcher/preflight/core/link_check.h); the others measure what they
// are told. All of it within about 5 s for 8 nodes; a node that doesn't answer costs 2.5 s once.
//
// Before a run, each worker runs the check and then executes its own command in the same process
// (exec(2)): one job and one rendezvous. A second job would meet at a port that the first may still
// hold.
//
// In the store, below "ddprun_preflight/": seat/NODE, table, sitting/NODE, plan/PASS,
// sent/PASS/NODE, counted/PASS, looks/PASS/NODE, verdict.
//
// Returns: the verdict, the same on all nodes but for its JSON. Errors: DEADLINE_EXCEEDED,
// UNAVAILABLE — node 0's store can't be reached, or it says nothing; INVALID_ARGUMENT — another
// release there; errno of sockets. Threads: the caller's, which it blocks, and one more.
absl::StatusOr<NetworkVerdict> CheckNetwork(const CheckMember& place, Meeting* meeting);

// What a worker that isn't its node's first waits for.
absl::StatusOr<NetworkVerdict> AwaitVerdict(Meeting* meeting);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PREFLIGHT_NETWORK_CHECK_H_
