#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_GLOO_STUB_GLOO_CONTEXT_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_GLOO_STUB_GLOO_CONTEXT_H_

#include <gloo/transport/device.h>

#include <chrono>
#include <memory>

// LibTorch carries its own Gloo inside libtorch_cpu.so but not its headers. ProcessGroupGloo.hpp
// needs only these declarations; nothing of ours calls into them.
namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};

}  // namespace transport
}  // namespace gloo

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_GLOO_STUB_GLOO_CONTEXT_H_
