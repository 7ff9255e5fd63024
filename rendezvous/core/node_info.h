#ifndef DDPRUN_RENDEZVOUS_CORE_NODE_INFO_H_
#define DDPRUN_RENDEZVOUS_CORE_NODE_INFO_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace ddprun::rendezvous {

// One node as its agent describes it (proto NodeInfo).
struct NodeInfo {
  std::string hostname;
  uint32_t agent_pid = 0;
  std::string address;  // at which other nodes reach it: name or IP without brackets
  uint32_t worker_count = 1;
  std::string role = "default";
  std::optional<uint32_t> node_rank;  // explicit claim
  bool hosts_endpoint = false;        // comes first in rank order
  uint32_t master_port = 0;           // reserved for the workers' store (R11); 0 = none
  std::string store_address;          // "host:port" of the agent's store; "" = none
  std::string guards;                 // against orphans, for people; "" = not reported
  std::string release;                // of the node's agent: "0.1.0"; "" = not known
  bool hosts_service = false;         // the service is this agent's child

  friend bool operator==(const NodeInfo&, const NodeInfo&) = default;
};

// What an agent is doing when it (re)joins.
enum class GroupState { kIdle, kRunning, kStopping, kSucceeded };

// Figures of a node for people who watch; nothing is decided by them.

// What a GPU does (proto GpuStatus has the units).
struct GpuUse {
  uint32_t index = 0;
  std::optional<uint32_t> utilization;  // percent, 0 to 100; nullopt = the driver doesn't report it
  uint64_t memory_used = 0;             // bytes
  uint64_t memory_total = 0;            // bytes
  bool lost = false;                    // the driver has lost it; the other fields are unknown

  friend bool operator==(const GpuUse&, const GpuUse&) = default;
};

// How the workers of a node with --warm on start (proto WarmStatus).
struct WarmUse {
  uint32_t warm_workers = 0;
  uint32_t cold_workers = 0;
  absl::Duration saved;
  uint64_t parked_bytes = 0;
  std::string why_cold;

  friend bool operator==(const WarmUse&, const WarmUse&) = default;
};

// A worker that is suspected to hold up the job (proto HoldUp).
struct HoldUp {
  absl::Duration lasted;
  std::string why;

  friend bool operator==(const HoldUp&, const HoldUp&) = default;
};

// How the workers of a generation started, on all of its nodes with --warm on.
struct WarmStart {
  uint32_t warm_workers = 0;  // warm_workers + cold_workers > 0
  uint32_t cold_workers = 0;
  absl::Duration saved;  // time saved by the worker that gained most

  friend bool operator==(const WarmStart&, const WarmStart&) = default;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_NODE_INFO_H_
