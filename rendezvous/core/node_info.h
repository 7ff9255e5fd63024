#ifndef DDPRUN_RENDEZVOUS_CORE_NODE_INFO_H_
#define DDPRUN_RENDEZVOUS_CORE_NODE_INFO_H_

#include <cstdint>
#include <optional>
#include <string>

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

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_NODE_INFO_H_
