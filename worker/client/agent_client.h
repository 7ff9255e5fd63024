#ifndef DDPRUN_WORKER_CLIENT_AGENT_CLIENT_H_
#define DDPRUN_WORKER_CLIENT_AGENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

// The worker's side of proto agent/v1 as plain C++, without gRPC, protobuf or LibTorch, so that
// code with LibTorch's headers can include this.
namespace ddprun::worker {

// A worker's place in the current generation.
struct WorkerAssignment {
  uint64_t generation = 0;
  uint32_t rank = 0;
  uint32_t local_rank = 0;
  uint32_t world_size = 1;
  uint32_t local_world_size = 1;
  uint32_t group_rank = 0;
  uint32_t group_world_size = 1;
  uint32_t restart_count = 0;
  uint32_t max_restarts = 0;
  std::string run_id;
  std::string master_addr;
  uint32_t master_port = 0;
  std::string node_address;  // which this node's workers bind for collectives
};

// The key-value store of one generation, shared by all its workers. Keys and values are bytes.
// Every call can return:
//   ABORTED            the generation is over: stop, the agent starts a new worker
//   UNAVAILABLE        this node's agent, or the one of rank 0's node, can't be reached
//   RESOURCE_EXHAUSTED the key or the value is too large, or the store is full
// Timeouts are rounded up to milliseconds; calls without one answer within kStoreCallTimeout.
// Threads: any.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;

  virtual absl::Status Set(const std::string& key, const std::string& value) = 0;
  // Waits for the key. Errors: DEADLINE_EXCEEDED — it did not appear in time.
  virtual absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) = 0;
  // Waits until all keys are there. Errors: DEADLINE_EXCEEDED — the text names a missing one.
  virtual absl::Status Wait(const std::vector<std::string>& keys, absl::Duration timeout) = 0;
  // Adds to a decimal number, 0 when absent, and returns the new number.
  // Errors: INVALID_ARGUMENT — the value is not a number.
  virtual absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) = 0;
  // True when all keys are there.
  virtual absl::StatusOr<bool> Check(const std::vector<std::string>& keys) = 0;
  // True when the key was there.
  virtual absl::StatusOr<bool> Delete(const std::string& key) = 0;
  // Sets `desired` when the value equals `expected`, or when the key is absent and `expected` is
  // empty. Returns the value afterwards, or `expected` when the key stays absent.
  virtual absl::StatusOr<std::string> CompareSet(const std::string& key,
                                                 const std::string& expected,
                                                 const std::string& desired) = 0;
  // Number of keys.
  virtual absl::StatusOr<int64_t> Count() = 0;
  // Sets `key`, unless it is empty, then waits for all `keys`, and returns their values in the
  // order of the keys: an exchange among ranks in one call.
  // Errors: DEADLINE_EXCEEDED — the text names a missing key. RESOURCE_EXHAUSTED — the values have
  // more than 16 MiB together. INTERNAL — the agent's answer has another number of values.
  virtual absl::StatusOr<std::vector<std::string>> Gather(const std::string& key,
                                                          const std::string& value,
                                                          const std::vector<std::string>& keys,
                                                          absl::Duration timeout) = 0;
};

// How long the agents may take for a call that doesn't wait.
inline constexpr absl::Duration kStoreCallTimeout = absl::Seconds(30);

// A wait for the end of a generation, for as long as this object lives.
class GenerationWatch {
 public:
  // Gives up the wait. Once the destructor returns, the function isn't running and won't be called.
  // Don't destroy the watch inside the function.
  virtual ~GenerationWatch() = default;
};

// A worker's connection to the agent of its node. Threads: any.
class AgentClient {
 public:
  virtual ~AgentClient() = default;

  // Prepares a connection to the unix socket `socket_path`. Sends nothing: if there is no agent,
  // the first call fails. `can_park`: reported to the agent: this program can be started ahead
  // (worker/env/parked_program.h).
  static std::unique_ptr<AgentClient> Create(const std::string& socket_path,
                                             const std::string& run_id, bool can_park = false);

  // The assignment of the worker `local_rank`; waits up to `timeout` for one that is newer than
  // `after_generation` (0 = any).
  // Errors: ABORTED — the job is over. DEADLINE_EXCEEDED — there was none in time. INVALID_ARGUMENT
  // — no such local rank. UNAVAILABLE — the agent can't be reached.
  virtual absl::StatusOr<WorkerAssignment> GetAssignment(uint32_t local_rank,
                                                         uint64_t after_generation,
                                                         absl::Duration timeout) = 0;

  // Calls `on_end` once when `generation`, in which the worker `local_rank` takes part, is over:
  // with the reason, or with an error if that can't be known (UNAVAILABLE — the agent is gone;
  // UNIMPLEMENTED — the agent is an older version; ABORTED — the job is over). From this call on
  // the agent expects the worker to leave the generation when it ends, and to ask for its next
  // place (GetAssignment).
  // Threads: `on_end` runs in a thread of the watch.
  virtual std::unique_ptr<GenerationWatch> WatchGeneration(
      uint32_t local_rank, uint64_t generation,
      std::function<void(absl::StatusOr<std::string>)> on_end) = 0;

  // The store of a generation, which stays usable after this client is destroyed.
  virtual std::shared_ptr<KeyValueStore> Store(uint64_t generation) = 0;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_CLIENT_AGENT_CLIENT_H_
