#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVE_WORK_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVE_WORK_H_

#include <ATen/core/ivalue.h>

#include <exception>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

namespace ddprun::worker {

// One collective under way, as c10d knows it: with a future that holds the result's tensors.
// Threads: any.
class CollectiveWork : public c10d::Work {
 public:
  CollectiveWork(int rank, c10d::OpType type, std::vector<at::Tensor> result);

  // Call one of both, once. Callbacks of the future run in the caller's thread.
  void Complete();
  void Fail(const std::exception_ptr& error);

  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return result_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  const std::vector<at::Tensor> result_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVE_WORK_H_
