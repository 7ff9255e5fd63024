#ifndef DDPRUN_WORKER_TORCH_OPTIM_STORAGE_ON_USE_H_
#define DDPRUN_WORKER_TORCH_OPTIM_STORAGE_ON_USE_H_

#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/types.h>

#include <cstddef>
#include <vector>

namespace ddprun::worker {

// A hook of a parameter's gradient accumulator that takes the gradient away, so that the
// parameter's grad() isn't the gradient that the optimizer will use. Code that would read grad()
// recognizes the hook by its type.
class GradientTaker : public torch::autograd::utils::LambdaPostHook {
 public:
  using LambdaPostHook::LambdaPostHook;
};

// Whether this parameter has a GradientTaker. Threads: the training loop's, outside of backward
// passes.
bool GradientIsTaken(const torch::Tensor& parameter);

// tensor.set_data(data), also for a marked tensor (storage_on_use.h) that has lost its memory with
// its owner.
void SetDataOfMarked(torch::Tensor& tensor, const torch::Tensor& data);

// Tensors that have memory only while it is needed. Python does this with hooks of modules, which
// LibTorch doesn't have; here LibTorch's dispatcher does it. A marked tensor has one more dispatch
// key, of the highest rank, and the kernel of that key asks the storage's owner for the memory
// before it runs the operator. Views of a marked tensor are marked, and so are the copies that
// autograd saves, so backward passes and recomputed activations ask as the forward pass does.

// Provides the memory of storages, which it has numbered.
class StorageOwner {
 public:
  StorageOwner() = default;
  virtual ~StorageOwner() = default;
  StorageOwner(const StorageOwner&) = delete;
  StorageOwner& operator=(const StorageOwner&) = delete;

  // Called before an operator uses all of these storages, in the order of its arguments: they must
  // have their memory when this returns, and keep it until the next call. May throw.
  virtual void BeforeUse(const std::vector<size_t>& storages) = 0;
  // Called after an operator has changed these storages.
  virtual void AfterWrite(const std::vector<size_t>& storages) = 0;
  // Whether all storages have their memory until further notice.
  virtual bool Holds() const = 0;
  // True: the storages never have memory, and zero_grad() of modules and optimizers passes them by.
  virtual bool HasNone() const { return false; }
};

// A marked handle to the same memory; for torch::Tensor::set_data.
torch::Tensor Marked(const torch::Tensor& tensor);
// A marked tensor like `tensor`, without memory; its storage has no owner yet.
torch::Tensor MarkedWithoutMemory(const torch::Tensor& tensor);
bool IsMarked(const torch::Tensor& tensor);
// Whether the tensor's memory can be read without asking an owner: the tensor isn't marked, or the
// owner holds all memory. LibTorch's torch::save, which calls no operator, refuses other tensors.
bool StaysInMemory(const torch::Tensor& tensor);

// The end of the error of code that reads a parameter which doesn't stay in memory.
inline constexpr const char* kInShares =
    "is in the shares of a ZeroOptimizer (stage 3): hold what Session::WholeParameters() returns, "
    "or "
    "a ZeroOptimizer::WholeParameters, on all ranks meanwhile";

// Makes marked tensors in `storage` ask `owner` from now on. Requires: both live until Disown.
// Threads: any, for different storages.
void Own(const c10::StorageImpl& storage, StorageOwner& owner, size_t number);
void Disown(const c10::StorageImpl& storage);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_STORAGE_ON_USE_H_
