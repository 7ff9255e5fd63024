#ifndef DDPRUN_WORKER_TORCH_CONTEXT_IMPLEMENTATION_H_
#define DDPRUN_WORKER_TORCH_CONTEXT_IMPLEMENTATION_H_

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "ddprun/context.h"
#include "worker/env/worker_environment.h"

namespace ddprun {

// Members die in reverse order: the group uses the store to its end.
struct Context::Implementation {
  worker::WorkerEnvironment environment;
  std::string node_address;  // "" = unknown
  std::string backend;
  torch::Device device = torch::kCPU;
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_TORCH_CONTEXT_IMPLEMENTATION_H_
