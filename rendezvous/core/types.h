#ifndef DDPRUN_RENDEZVOUS_CORE_TYPES_H_
#define DDPRUN_RENDEZVOUS_CORE_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/strong.h"

namespace ddprun::rendezvous {

using NodeId = Strong<struct NodeIdTag, std::string>;
// One agent process; drawn at its start, never 0.
using Incarnation = Strong<struct IncarnationTag, uint64_t>;
// Counts the streams of an incarnation from 1.
using StreamNumber = Strong<struct StreamNumberTag, uint64_t>;
// One life of a service without its journal; never 0 once known.
using Term = Strong<struct TermTag, uint64_t>;
// One complete assignment of ranks; 0 = none yet.
using Generation = Strong<struct GenerationTag, uint64_t>;

// What all nodes of a job must agree on (proto JobSpec). Unset numbers have their defaults here.
struct JobSpec {
  std::string run_id;
  uint32_t nodes_min = 1;
  uint32_t nodes_max = 1;
  uint32_t max_restarts = 0;
  std::string fingerprint;  // digest of command, sizes and versions
  std::string description;  // the same for people
  absl::Duration join_timeout = absl::Seconds(600);
  absl::Duration last_call_timeout = absl::Seconds(30);
  absl::Duration lease = absl::Seconds(5);
  absl::Duration reconnect_grace = absl::Milliseconds(150);
  absl::Duration stop_grace = absl::Seconds(30);  // TERM to KILL
};

// One node as its agent describes it (proto NodeInfo).
struct NodeInfo {
  std::string hostname;
  uint32_t agent_pid = 0;
  std::string address;  // where other nodes reach it: name or IP without brackets
  uint32_t worker_count = 1;
  std::string role = "default";
  std::optional<uint32_t> node_rank;  // explicit claim
  bool hosts_endpoint = false;        // comes first in rank order
  uint32_t master_port = 0;           // reserved for the workers' store (R11); 0 = none
  std::string store_address;          // "host:port" of the agent's store; "" = none
};

// How one worker failed by itself (proto WorkerFailure has the units).
struct WorkerFailure {
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  NodeId node_id;
  std::string hostname;
  uint32_t pid = 0;
  int exit_code = 0;  // 0 to 255; meaningful when signal is 0
  int signal = 0;     // 0 = it exited
  bool core_dumped = false;
  std::string start_error;  // why exec failed
  std::string message;      // of the error file
  std::string traceback;    // of the error file
  std::string error_file;
  std::string stderr_tail;
  std::vector<std::string> facts;  // "<name>: <text>"; what its node says about its end
  uint64_t wall_time_ms = 0;       // for display only
  uint64_t after_first_ms = 0;     // after the first failure on the same node
  Generation generation;

  friend bool operator==(const WorkerFailure&, const WorkerFailure&) = default;
};

enum class Outcome { kSucceeded, kFailed, kStopped };

// What an agent is doing when it (re)joins.
enum class GroupState { kIdle, kRunning, kStopping, kSucceeded };

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_TYPES_H_
