#ifndef DDPRUN_WORKER_TORCH_ZERO_TAKEN_GRADIENTS_H_
#define DDPRUN_WORKER_TORCH_ZERO_TAKEN_GRADIENTS_H_

#include <torch/types.h>

#include <cstddef>
#include <vector>

#include "worker/torch/optim/storage_on_use.h"
#include "worker/torch/zero/zero_storage.h"

namespace ddprun::worker {

// Placeholders for gradients that are in the ranks' shares: tensors without memory that throw when
// they are used. Without a placeholder grad() would be undefined, and LibTorch's clip_grad_norm_,
// or an optimizer of the program's own, would skip the parameter without a word.
// Threads: those of ZeroReducer.
class TakenGradients : public StorageOwner {
 public:
  // Requires: `parameters` outlive this.
  explicit TakenGradients(const std::vector<ZeroParameter>& parameters);
  ~TakenGradients() override;  // removes the placeholders

  // Puts the parameter's placeholder in the place of its gradient.
  void Put(size_t parameter);
  // Removes the parameter's placeholder, if it is there, because autograd adds to what is there.
  void Remove(size_t parameter);
  bool IsPut(size_t parameter) const;

  // Throws StatusError, FAILED_PRECONDITION.
  void BeforeUse(const std::vector<size_t>& gradients) override;
  void AfterWrite(const std::vector<size_t>& /*gradients*/) override {}
  bool Holds() const override { return false; }
  bool HasNone() const override { return true; }

 private:
  const std::vector<ZeroParameter>& parameters_;
  std::vector<torch::Tensor> placeholders_;  // by parameter
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ZERO_TAKEN_GRADIENTS_H_
