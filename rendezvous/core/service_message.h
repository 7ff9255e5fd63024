#ifndef DDPRUN_RENDEZVOUS_CORE_SERVICE_MESSAGE_H_
#define DDPRUN_RENDEZVOUS_CORE_SERVICE_MESSAGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/releases.h"
#include "rendezvous/core/verdict.h"

// Messages from the service to an agent of proto/ddprun/rendezvous/v1 as plain data, for work
// without protobuf; rendezvous/wire converts and validates. The .proto files have units and
// defaults.
namespace ddprun::rendezvous {

struct Welcome {
  Term term;
  std::string release;
  absl::Duration lease;
  uint64_t processed_sequence = 0;
  uint64_t heartbeat_key = 0;   // set by the shell, not by the core
  absl::Duration job_age = {};  // since the first node joined; for people who watch

  friend bool operator==(const Welcome&, const Welcome&) = default;
};

struct Probe {
  uint64_t nonce = 0;
  uint64_t processed_sequence = 0;
  absl::Duration lease = {};  // the longer lease of a job with many nodes; zero = the job's own
  // The probe asks whether everything sent before it has arrived, so it isn't sent ahead of other
  // messages; not on the wire. Other probes measure a lease and overtake what waits (R10).
  bool in_order = false;

  friend bool operator==(const Probe&, const Probe&) = default;
};

struct Standby {
  std::string reason;
  bool spare = false;
  uint32_t nodes_present = 0;
  uint32_t nodes_wanted = 0;

  friend bool operator==(const Standby&, const Standby&) = default;
};

// One node's place in a generation. Nothing of the other nodes is in it, so its size is O(1).
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
  std::string reason;
  std::string rule;               // name of the rule that formed the generation (verdict.h)
  uint32_t restarts_charged = 0;  // those of restart_count that were not given back
  uint64_t redone_to = 0;         // highest step that was begun before and lost; 0 = none

  friend bool operator==(const Assignment&, const Assignment&) = default;
};

struct StopWorkers {
  Generation generation;
  std::string reason;

  friend bool operator==(const StopWorkers&, const StopWorkers&) = default;
};

// Asks an agent to observe its workers over two samples, and to answer with a HangReport.
struct ReportProgress {
  Generation generation;
  absl::Duration sample;

  friend bool operator==(const ReportProgress&, const ReportProgress&) = default;
};

// Names workers of the agent that hold up the others.
struct HungWorkers {
  Generation generation;
  std::vector<uint32_t> local_ranks;
  std::string reason;  // the evidence, for people
  bool end = false;    // kill them and report them as failed; false: only print it

  friend bool operator==(const HungWorkers&, const HungWorkers&) = default;
};

// Asks an agent to hold workers that reach this step, and to report how far they are.
struct PrepareStop {
  Generation generation;
  uint32_t round = 0;  // of the agreement, from 1
  uint64_t step = 0;   // 0 = hold no worker, only report

  friend bool operator==(const PrepareStop&, const PrepareStop&) = default;
};

// Lets workers that reach this step save and end.
struct CommitStop {
  Generation generation;
  uint64_t step = 0;
  absl::Duration within;
  std::string reason;  // for people

  friend bool operator==(const CommitStop&, const CommitStop&) = default;
};

// Asks an agent to leave in an orderly way (R15).
struct Drain {
  std::string reason;  // for people; "" = none was given

  friend bool operator==(const Drain&, const Drain&) = default;
};

using ServiceMessage =
    std::variant<Welcome, Probe, Standby, Assignment, StopWorkers, Verdict, ReportProgress,
                 HungWorkers, PrepareStop, CommitStop, Drain, UnknownKind>;

// A message that goes to many nodes is made and encoded once. Never null.
using SharedMessage = std::shared_ptr<const ServiceMessage>;

inline SharedMessage ShareMessage(ServiceMessage message) {
  return std::make_shared<const ServiceMessage>(std::move(message));
}

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_SERVICE_MESSAGE_H_
