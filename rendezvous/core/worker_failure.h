#ifndef DDPRUN_RENDEZVOUS_CORE_WORKER_FAILURE_H_
#define DDPRUN_RENDEZVOUS_CORE_WORKER_FAILURE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/core/identifiers.h"

namespace ddprun::rendezvous {

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

// The evidence against several workers, when each of them may be the one that holds up the others
// (R13). Follows their number in WorkerFailure.message.
inline constexpr char kTiedEvidence[] = "workers can't be told apart";

// Prefix of the reason of a HungWorkers that accuses no worker: the nodes listed after it have
// ended well, and these workers still run. Agents of older releases find no suspect, and print
// nothing.
inline constexpr char kEndedEvidence[] = "others have ended: ";

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_WORKER_FAILURE_H_
