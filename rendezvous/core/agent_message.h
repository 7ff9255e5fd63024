#ifndef DDPRUN_RENDEZVOUS_CORE_AGENT_MESSAGE_H_
#define DDPRUN_RENDEZVOUS_CORE_AGENT_MESSAGE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/node_info.h"
#include "rendezvous/core/releases.h"
#include "rendezvous/core/time_spent.h"
#include "rendezvous/core/worker_failure.h"
#include "rendezvous/core/worker_progress.h"

// Messages from an agent to the service of proto/ddprun/rendezvous/v1 as plain data, for work
// without protobuf; rendezvous/wire converts and validates. The .proto files have units and
// defaults.
namespace ddprun::rendezvous {

struct Join {
  uint32_t protocol_major = 0;
  std::string token;
  JobSpec job;
  NodeInfo node;
  GroupState group_state = GroupState::kIdle;
  absl::Duration job_age = {};  // a lower bound; zero = the agent was never welcomed
};

struct Renewal {
  uint64_t nonce = 0;
  // Progress words of the workers (docs/PROGRESS.md) by local rank, for people who watch.
  std::vector<uint64_t> progress = {};
  absl::Duration step_time = {};  // zero = unknown
  std::optional<NodeTime> time = {};
  std::vector<GpuUse> gpus = {};             // for people who watch; empty = nothing new
  std::optional<WarmUse> warm = {};          // for people who watch; nullopt = without --warm
  bool can_rejoin = false;                   // its workers keep their processes when a node is lost
  std::map<uint32_t, HoldUp> hold_ups = {};  // for people who watch; by local rank
  std::optional<uint64_t> checkpoint_bytes = {};  // of checkpoints in memory, for people
};

struct Heartbeat {
  uint64_t key = 0;
};

struct WorkersStarted {};

struct WorkerFailed {
  WorkerFailure failure;
};

struct GroupSucceeded {
  std::optional<NodeTime> time = {};  // until its last worker ended
};

struct GroupStopped {
  std::vector<WorkerFailure> failures;
  bool clean = true;
  uint32_t master_port = 0;
  std::optional<uint64_t> step;       // highest that a worker marked; nullopt = none marks
  std::optional<NodeTime> time = {};  // until the stop of its workers began
  std::vector<uint32_t> left =
      {};             // local ranks that had ended with 0 before; kFailuresMax at most
  uint32_t kept = 0;  // workers that keep their processes
};

struct Leave {
  std::string reason;
  bool end_job = false;
  bool preempted = false;
};

// The progress of this node's workers: some are suspect, some no longer are, or the service asked.
struct HangReport {
  std::vector<WorkerProgress> workers;  // the living ones
  absl::Duration sample;                // between two observations of a worker

  bool any_suspect() const {
    return std::any_of(workers.begin(), workers.end(),
                       [](const WorkerProgress& worker) { return worker.suspect; });
  }
};

// The sender's node is about to be taken away (R14).
struct Preempt {
  std::string reason;
  absl::Duration deadline;  // time until it is taken away
  bool ends_job = false;    // the job can't go on without this node
  bool drained = false;     // because of a Drain (R15)
};

// Answers a PrepareStop.
struct StopPrepared {
  uint32_t round = 0;
  StopLook look;
};

struct AgentMessage {
  std::string run_id;
  Term term;
  NodeId node_id;
  Incarnation incarnation;
  StreamNumber stream;
  Generation generation;
  uint64_t sequence = 0;  // 0 for Join, Renewal and Heartbeat
  std::variant<Join, Renewal, Heartbeat, WorkersStarted, WorkerFailed, GroupSucceeded, GroupStopped,
               Leave, HangReport, Preempt, StopPrepared, UnknownKind>
      body;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_AGENT_MESSAGE_H_
