#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_SHM_BACKEND_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_SHM_BACKEND_H_

#include <memory>
#include <string>

#include "worker/torch/collectives/collective_backend.h"
#include "worker/torch/collectives/shm_group.h"

namespace ddprun::worker {

// c10d's collectives between the processes of one host, in shared memory (worker/shm).
// Small ones are tried in the calling thread: between ranks that are in step they take
// microseconds.
class ShmBackend : public CollectiveBackend {
 public:
  ShmBackend(std::unique_ptr<ShmGroup> group, std::chrono::milliseconds timeout);
  ~ShmBackend() override;

  const std::string getBackendName() const override { return "shm"; }

 protected:
  Step AllReduce(const at::Tensor& tensor, const c10d::ReduceOp& operation) override;
  Step Broadcast(const at::Tensor& tensor, uint32_t root) override;
  Step AllGather(const at::Tensor& input, const Tensors& outputs) override;
  Step ReduceScatter(const Tensors& inputs, const at::Tensor& output,
                     const c10d::ReduceOp& operation) override;
  Step Barrier() override;
  void Break(const std::string& reason) override { group_->Break(reason); }

 private:
  // `kept`: what the call points into. `bytes`: what it moves.
  Step ToStep(shm::Call call, Tensors kept, size_t bytes);

  const std::unique_ptr<ShmGroup> group_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_SHM_BACKEND_H_
