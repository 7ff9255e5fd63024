#ifndef DDPRUN_RENDEZVOUS_CORE_TYPES_H_
#define DDPRUN_RENDEZVOUS_CORE_TYPES_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/progress_page.h"
#include "base/strong.h"

namespace ddprun::rendezvous {

using NodeId = Strong<struct NodeIdTag, std::string>;
// One agent process; drawn at its start, never 0.
using Incarnation = Strong<struct IncarnationTag, uint64_t>;
// Number of a stream of an incarnation, from 1.
using StreamNumber = Strong<struct StreamNumberTag, uint64_t>;
// One life of a service, or several with one journal; never 0 once known.
using Term = Strong<struct TermTag, uint64_t>;
// One complete assignment of ranks; 0 = none so far.
using Generation = Strong<struct GenerationTag, uint64_t>;

// Above every count of a job; the largest value on the wire.
inline constexpr uint32_t kNoLimit = std::numeric_limits<int32_t>::max();

// When a job is restarted after failures, and when it is given up (proto RestartRules; R7). By
// default a job ends only when its restarts are used up, as with torchrun: any other limit is a
// guess that only the user can make.
struct RestartRules {
  uint32_t max_membership_changes = kNoLimit;  // in a row without progress
  // A generation that made progress and lasted this long gives all restarts back; 0 = none does.
  absl::Duration restart_window = absl::ZeroDuration();
  // Longest pause before a restart after quick failures in a row; 0 = never a pause.
  absl::Duration backoff_max = absl::Seconds(30);
  uint32_t crash_loop = 0;        // starts in a row that fail alike end the job; 0 = never
  uint32_t give_up_after = 0;     // failed generations without progress end the job; 0 = never
  uint32_t quarantine_after = 3;  // failures that begin on one node leave it out; 0 = never
  absl::Duration quarantine_time = absl::Hours(1);  // how long one of them counts
  // The user chose quarantine_after: the node is left out even if no other node can replace it.
  bool quarantine_shrinks = false;

  friend bool operator==(const RestartRules&, const RestartRules&) = default;
};

// What all nodes of a job must agree on (proto JobSpec). Unset numbers have their defaults here.
struct JobSpec {
  std::string run_id;
  uint32_t nodes_min = 1;
  uint32_t nodes_max = 1;
  uint32_t max_restarts = 0;
  // The user didn't choose max_restarts: a worker that was killed from outside is replaced anyway
  // if other workers keep their processes (R7).
  bool survivors_restart = false;
  std::string fingerprint;  // digest of command, sizes and versions
  std::string description;  // what the fingerprint covers, for people
  absl::Duration join_timeout = absl::Seconds(600);
  absl::Duration last_call_timeout = absl::Seconds(30);
  absl::Duration lease = absl::Seconds(5);
  bool lease_is_proof =
      false;  // the user chose the lease: a node silent for that long is lost (R4)
  absl::Duration reconnect_grace = absl::Milliseconds(150);
  absl::Duration stop_grace = absl::Seconds(30);  // TERM to KILL
  RestartRules restart;
  // How many agents of this job a scheduler starts at the same time, each once; 0 = not known. The
  // job may end before the last one has started (R8).
  uint32_t agents_started = 0;

  friend bool operator==(const JobSpec&, const JobSpec&) = default;
};

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

// Prefix of the fact that the kernel's out-of-memory killer killed a worker (docs/LOGS.md).
inline constexpr char kOutOfMemoryFact[] = "memory: the kernel killed ";

// Prefix of the fact that a file system was full (docs/LOGS.md).
inline constexpr char kFullDiskFact[] = "disk: ";

// Prefix of the fact that names ranks that had ended with status 0 before a failure (docs/LOGS.md).
inline constexpr char kLeftFact[] = "left: ";

// The evidence against a worker that hangs because it was stopped (R13).
inline constexpr char kStoppedEvidence[] = "stopped by a signal";

// How one worker failed; not for workers that were stopped (proto WorkerFailure has the units).
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
  std::string message;      // from the error file
  std::string traceback;    // from the error file
  std::string error_file;
  std::string stderr_tail;
  std::vector<std::string> facts;  // "<name>: <text>"; what its node found out about its end
  uint64_t wall_time_ms = 0;       // for display only
  uint64_t after_first_ms = 0;     // after the first failure on the same node
  Generation generation;
  bool hung = false;       // its agent killed it because it made no progress (R13)
  bool preflight = false;  // it found before the run that the job can't run; see `message` (R7)
  bool texts_left_out = false;  // a verdict to many nodes lacks some of its texts (R8)

  friend bool operator==(const WorkerFailure&, const WorkerFailure&) = default;
};

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

// What an agent has observed of a worker.
enum class Activity {
  kUnknown,  // not observed so far
  kActive,   // uses the processor, moves bytes, or waits for a disk
  kStill,    // none of these, with the same kernel stack, over two samples
  kStopped,  // by a signal or a tracer
};

// A process group of torch.distributed that a worker belongs to.
struct GroupProgress {
  std::string name;       // the same on all members
  uint64_t sequence = 0;  // collectives that the worker has begun in the group
  uint32_t size = 0;      // members

  friend bool operator==(const GroupProgress&, const GroupProgress&) = default;
};

// How far one worker is, as its agent sees it (proto WorkerProgress has the units).
struct WorkerProgress {
  uint32_t local_rank = 0;
  ProgressPhase phase = ProgressPhase::kNone;  // kNone: it never marked
  uint64_t step = 0;
  absl::Duration silent;  // since its last mark, or since it did anything (unmarked)
  bool suspect = false;   // silent for longer than the limit of its phase
  bool overdue = false;   // silent for so long that being busy is no excuse
  bool early = false;     // suspect before its steps are known: judged by its collectives only
  Activity activity = Activity::kUnknown;
  std::string where;  // what the worker waits for in the kernel; "" = unknown
  // Collectives of the default group that it has begun, plus one; 0 = not known.
  uint64_t collectives = 0;
  bool expired = false;     // silent for as long as a hang may last (--hang_timeout)
  bool idle = false;        // no output and no processor time for an explicit --hang_timeout
  bool deadlocked = false;  // proof: all its threads wait for something that only they can release
  bool left = false;        // ended with status 0; `groups` are final
  std::vector<GroupProgress> groups;  // those that are known
  // The collective that its only thread waits in: the name of its group in `groups`, and the
  // function of torch.distributed; "" = none, or not known.
  std::string inside_group;
  std::string inside_call;

  friend bool operator==(const WorkerProgress&, const WorkerProgress&) = default;
};

// How a job ended; docs/SIGNALS.md has the exit statuses.
enum class Outcome {
  kSucceeded,
  kFailed,         // it may be started again
  kFailedForGood,  // starting it again won't help
  kStopped,        // on request
  kPreempted,      // its machines were taken away: start it again
};

// How far the workers of one node are from a stop step (proto StopPrepared).
struct StopLook {
  bool heeds = false;        // all living workers ask for a stop step
  bool below = false;        // no worker has passed it, and none can without being held
  uint64_t highest = 0;      // step that any of them has reached
  absl::Duration step_time;  // zero = unknown

  friend bool operator==(const StopLook&, const StopLook&) = default;
};

// What an agent is doing when it (re)joins.
enum class GroupState { kIdle, kRunning, kStopping, kSucceeded };

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_TYPES_H_
