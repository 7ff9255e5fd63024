#ifndef DDPRUN_WORKER_ENV_WORKER_ENVIRONMENT_H_
#define DDPRUN_WORKER_ENV_WORKER_ENVIRONMENT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun::worker {

// A worker's variables: those of torchrun, and ddprun's own.
struct WorkerEnvironment {
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  uint32_t world_size = 1;
  uint32_t local_world_size = 1;
  uint32_t group_rank = 0;
  std::string master_addr;
  uint32_t master_port = 0;
  uint32_t restart_count = 0;  // TORCHELASTIC_RESTART_COUNT
  uint32_t max_restarts = 0;   // TORCHELASTIC_MAX_RESTARTS
  std::string run_id;          // TORCHELASTIC_RUN_ID; "none" when unset
  std::string error_file;      // TORCHELASTIC_ERROR_FILE; "" = don't write one
  // TORCHELASTIC_USE_AGENT_STORE is exactly "True": the launcher serves the store at
  // master_addr:master_port, else the worker of rank 0 does.
  bool launcher_serves_store = false;
  uint64_t generation = 0;    // DDPRUN_GENERATION; 0 = not started by ddprun
  std::string progress_page;  // DDPRUN_PROGRESS: path of the page; "" = there is none
  std::string agent_socket;   // DDPRUN_AGENT: path of a unix socket; "" = not started by ddprun

  bool started_by_ddprun() const { return !agent_socket.empty(); }
};

// Returns the value of a variable, or nullopt if it is unset.
using VariableReader = std::function<std::optional<std::string>(const char* name)>;

// Reads and checks the environment contract (torchrun 2.11's variables, and DDPRUN_*).
// A program that was started by hand, with neither RANK nor WORLD_SIZE, is a world of one worker.
// Errors: INVALID_ARGUMENT — a variable is missing, malformed or contradicts another; the text
// names it and its value.
absl::StatusOr<WorkerEnvironment> ReadWorkerEnvironment(const VariableReader& read);

// ReadWorkerEnvironment from getenv(3). Threads: while no other thread changes the environment.
absl::StatusOr<WorkerEnvironment> ReadWorkerEnvironment();

// The error that ended a worker, as launchers show it.
struct WorkerError {
  std::string message;  // "<Type>: <text>"
  std::string stack;    // where it was thrown, innermost frame last; "" = unknown
};

// The text of an error file in torchelastic's schema, which torchrun and ddprun read:
// {"message": {"message": …, "extraInfo": {"py_callstack": …, "timestamp": "<epoch seconds>"}}}.
// Invalid UTF-8 is replaced. Without a stack the message is in its place, because launchers print
// the call stack.
std::string ErrorFileText(const WorkerError& error, int64_t epoch_seconds);

// Writes the error file, with the wall clock's time, so that no reader sees half of it. An existing
// file is kept, because the first error is the cause.
// Errors: the errno of open(2), write(2) or link(2), with the path.
absl::Status WriteErrorFile(const std::string& path, const WorkerError& error);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_ENV_WORKER_ENVIRONMENT_H_
