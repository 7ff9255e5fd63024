#ifndef DDPRUN_WORKER_TORCH_CONTEXT_GENERATION_END_H_
#define DDPRUN_WORKER_TORCH_CONTEXT_GENERATION_END_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/client/agent_client.h"
#include "worker/torch/collectives/group_abort.h"

namespace ddprun::worker {

// Learns from this node's agent when the worker's generation is over, and then ends the worker's
// waits: its collectives end with a PeerError. Threads: any.
class GenerationEnd {
 public:
  // `abort`: of the generation's groups. `agent` outlives it.
  GenerationEnd(AgentClient& agent, uint32_t local_rank, uint64_t generation,
                std::shared_ptr<GroupAbort> abort);

  bool is_over() const;
  // A token that requests a stop when the generation is over, for other waits of this process.
  std::stop_token over() const { return over_.get_token(); }

  // Waits until the generation is over. Returns why, for people.
  // Errors: DEADLINE_EXCEEDED — it isn't over within `patience`. Those of
  // AgentClient::WatchGeneration.
  absl::StatusOr<std::string> Await(absl::Duration patience);

 private:
  void OnEnd(absl::StatusOr<std::string> why);

  const std::shared_ptr<GroupAbort> abort_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<absl::StatusOr<std::string>> why_;  // nullopt: the generation goes on
  std::stop_source over_;
  std::unique_ptr<GenerationWatch> watch_;  // dies first
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CONTEXT_GENERATION_END_H_
