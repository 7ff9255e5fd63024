#ifndef DDPRUN_TOOLS_PREFLIGHT_NETWORK_CHECK_H_
#define DDPRUN_TOOLS_PREFLIGHT_NETWORK_CHECK_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "launcher/stores/tcp_store_client.h"
#include "tools/preflight/check_wire.h"

namespace ddprun::launcher {

// A client of the job's store for a network check, over links that may be faulty. Connects on
// demand, and again when a connection breaks or was given up. Threads: one at a time.
class Meeting {
 public:
  Meeting(std::string host, uint16_t port) : host_(std::move(host)), port_(port) {}

  // Called a few times a second while no connection can be made.
  void set_on_trying(std::function<void()> on_trying) { on_trying_ = std::move(on_trying); }

  // Errors of both: DEADLINE_EXCEEDED or UNAVAILABLE at the deadline, with the last reason.
  absl::Status Set(const std::string& key, const std::string& value, Instant deadline);
  // Waits until the key is set.
  absl::StatusOr<std::string> Get(const std::string& key, Instant deadline);

 private:
  absl::Status Connect(Instant deadline);

  const std::string host_;
  const uint16_t port_;
  std::function<void()> on_trying_;
  std::optional<TcpStoreClient> client_;
};

// CPU time of a fixed piece of work, about a millisecond: the least of a few samples. The thread's
// CPU time, not wall time: other processes don't count, a slower or throttled CPU does. Threads:
// any.
absl::Duration SampleWork();

// A worker's place in the job, and the job's store: torchrun's variables.
struct CheckMember {
  uint32_t node = 0;                   // GROUP_RANK
  uint32_t nodes = 1;                  // GROUP_WORLD_SIZE
  uint32_t expected = 0;               // nodes that should come; missing ones are reported
  std::optional<uint32_t> claim = {};  // this node's --node_rank
  std::string master_addr;
  uint16_t master_port = 0;
};

// Runs the check of a job's network, as one process on each node. Node 0 leads: it collects, judges
// and plans the next measurements (tools/preflight/core/link_check.h); all nodes measure. The
// check takes about 5 s for 8 nodes; a node that doesn't answer costs 2.5 s once.
//
// Before a run, each worker runs the check and then executes its own command in the same process
// (exec(2)): so there is one job and one rendezvous. A second job would need a port that the first
// may still hold.
//
// In the store, below "ddprun_preflight/": seat/NODE, table, sitting/NODE, plan/PASS,
// sent/PASS/NODE, counted/PASS, looks/PASS/NODE, verdict.
//
// Returns: the verdict, the same on all nodes except its JSON. Errors: DEADLINE_EXCEEDED,
// UNAVAILABLE — node 0's store can't be reached, or node 0 is silent; INVALID_ARGUMENT — node 0 has
// another release; errno of sockets. Threads: the caller's, which it blocks, and one more.
absl::StatusOr<NetworkVerdict> CheckNetwork(const CheckMember& place, Meeting* meeting);

// Waits for the verdict, in a worker that isn't its node's first.
absl::StatusOr<NetworkVerdict> AwaitVerdict(Meeting* meeting);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_NETWORK_CHECK_H_
