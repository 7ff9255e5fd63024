#ifndef DDPRUN_WORKER_TORCH_CONTEXT_CONTEXT_IMPLEMENTATION_H_
#define DDPRUN_WORKER_TORCH_CONTEXT_CONTEXT_IMPLEMENTATION_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ddprun/context.h"
#include "worker/client/agent_client.h"
#include "worker/env/progress_page.h"
#include "worker/env/worker_environment.h"
#include "worker/torch/collectives/group_abort.h"
#include "worker/torch/collectives/process_group.h"
#include "worker/torch/store/collective_check.h"

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

namespace ddprun {

// Members die in reverse order: the group uses the store to its end.
struct Context::Implementation {
  ContextOptions options;
  worker::WorkerEnvironment environment;
  worker::ProgressPage progress;
  bool rejoins = false;  // this process goes on in later generations, under ddprun
  bool alone = false;    // a collective broke: modules compute without the others until Rejoin()
  // Modules leave this rank's samples out of statistics over all ranks: it only takes part in the
  // others' pass.
  bool counts_no_samples = false;
  std::string node_address;  // "" = unknown
  std::string backend;
  torch::Device device = torch::kCPU;
  worker::ProcessGroupPlan plan;  // how `group` was made, for others like it
  uint64_t groups_created = 0;
  std::map<std::string, uint64_t> subgroups_created;  // by their ranks
  uint64_t models_created = 0;
  uint64_t starts = 0;  // of Sessions in this generation; each has store keys of its own
  // The Sessions that this process has begun.
  uint64_t sessions = 0;
  // By folder of checkpoints, the Session that has it; and the steps of Sessions that have ended.
  std::map<std::string, std::string> session_folders;
  int64_t steps_before = 0;
  std::shared_ptr<worker::CollectiveCheck> check;  // null: nothing is compared
  std::unique_ptr<worker::AgentClient> agent;      // null: not started by ddprun
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::unique_ptr<worker::GenerationEnd> end;  // of this generation; null: not watched
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_TORCH_CONTEXT_CONTEXT_IMPLEMENTATION_H_
