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

// Hears from the own agent when this worker's generation is over, and then ends what it waits for:
// its collectives end with a PeerError. Threads: any.
class GenerationEnd {
 public:
  // `abort`: of the generation's groups. `agent` outlives it.
  GenerationEnd(AgentClient& agent, uint32_t local_rank, uint64_t generation,
                std::shared_ptr<GroupAbort> abort);

  bool is_over() const;
  // Requests to stop when it is over: for what waits for anything else meanwhile.
  std::stop_token over() const { return over_.get_token(); }

  // Waits until it is over. Returns why, for people.
  // Errors: DEADLINE_EXCEEDED — it isn't within `patience`. Those of AgentClient::WatchGeneration.
  absl::StatusOr<std::string> Await(absl::Duration patience);

 private:
  void OnEnd(absl::StatusOr<std::string> why);

  const std::shared_ptr<GroupAbort> abort_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<absl::StatusOr<std::string>> why_;  // none: it goes on
  std::stop_source over_;
  std::unique_ptr<GenerationWatch> watch_;  // dies first
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CONTEXT_GENERATION_END_H_
