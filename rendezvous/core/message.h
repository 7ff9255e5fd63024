#ifndef DDPRUN_RENDEZVOUS_CORE_MESSAGE_H_
#define DDPRUN_RENDEZVOUS_CORE_MESSAGE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/core/types.h"

// The messages of proto/ddprun/rendezvous/v1 as plain data, so that both cores and the simulation
// work without protobuf. rendezvous/wire converts and validates; the units and defaults stand
// there.
namespace ddprun::rendezvous {

// ------------------------------------------------------------- agent to service

struct Join {
  uint32_t protocol_major = 0;
  uint32_t protocol_minor = 0;
  std::string release;
  std::string token;
  JobSpec job;
  NodeInfo node;
  GroupState group_state = GroupState::kIdle;
};

struct Renewal {
  uint64_t nonce = 0;
};

struct WorkersStarted {};

struct WorkerFailed {
  WorkerFailure failure;
};

struct GroupSucceeded {};

struct GroupStopped {
  std::vector<WorkerFailure> failures;
  bool clean = true;
  uint32_t master_port = 0;
};

struct Leave {
  std::string reason;
  bool end_job = false;
};

struct AgentMessage {
  std::string run_id;
  Term term;
  NodeId node_id;
  Incarnation incarnation;
  StreamNumber stream;
  Generation generation;
  uint64_t sequence = 0;  // 0 for Join and Renewal
  std::variant<Join, Renewal, WorkersStarted, WorkerFailed, GroupSucceeded, GroupStopped, Leave>
      body;
};

// ------------------------------------------------------------- service to agent

struct Welcome {
  Term term;
  std::string release;
  absl::Duration lease;
  uint64_t processed_sequence = 0;
};

struct Probe {
  uint64_t nonce = 0;
  uint64_t processed_sequence = 0;
};

struct Standby {
  std::string reason;
  bool spare = false;
  uint32_t nodes_present = 0;
  uint32_t nodes_wanted = 0;

  friend bool operator==(const Standby&, const Standby&) = default;
};

struct Member {
  NodeId node_id;
  std::string hostname;
  uint32_t base_rank = 0;
  uint32_t worker_count = 0;

  friend bool operator==(const Member&, const Member&) = default;
};

struct Assignment {
  Generation generation;
  uint32_t restart_count = 0;
  uint32_t world_size = 0;
  uint32_t group_rank = 0;
  uint32_t group_world_size = 0;
  uint32_t base_rank = 0;
  uint32_t base_role_rank = 0;
  uint32_t role_world_size = 0;
  std::string master_addr;
  uint32_t master_port = 0;
  std::string store_address;  // "" = rank 0 is on this node
  std::vector<Member> members;
  std::string reason;

  friend bool operator==(const Assignment&, const Assignment&) = default;
};

struct StopWorkers {
  Generation generation;
  std::string reason;
};

struct Verdict {
  Outcome outcome = Outcome::kFailed;
  std::string reason;
  std::vector<WorkerFailure> failures;  // first causes first
  uint32_t first_causes = 0;            // how many of them tie; 0 = there is none
  Generation generation;
  uint32_t restart_count = 0;
};

using ServiceMessage = std::variant<Welcome, Probe, Standby, Assignment, StopWorkers, Verdict>;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MESSAGE_H_
