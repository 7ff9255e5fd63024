#ifndef DDPRUN_WORKER_TORCH_CONTEXT_CONTEXT_IMPLEMENTATION_H_
#define DDPRUN_WORKER_TORCH_CONTEXT_CONTEXT_IMPLEMENTATION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ddprun/context.h"
#include "worker/client/agent_client.h"
#include "worker/env/progress_page.h"
#include "worker/env/worker_environment.h"
#include "worker/torch/collectives/process_group.h"
#include "worker/torch/context/generation_end.h"
#include "worker/torch/store/collective_check.h"

namespace ddprun {

// Members die in reverse order: the group uses the store to its end.
struct Context::Implementation {
  ContextOptions options;
  worker::WorkerEnvironment environment;
  worker::ProgressPage progress;
  bool rejoins = false;  // this process goes on in later generations, under ddprun
  bool alone = false;    // a collective broke: modules compute without the others until Rejoin()
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
