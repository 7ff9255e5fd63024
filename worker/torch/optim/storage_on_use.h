#ifndef DDPRUN_WORKER_TORCH_OPTIM_STORAGE_ON_USE_H_
#define DDPRUN_WORKER_TORCH_OPTIM_STORAGE_ON_USE_H_

#include <c10/core/StorageImpl.h>
#include <torch/types.h>

#include <cstddef>
#include <vector>

namespace ddprun::worker {

// Tensors whose memory is there only when it is needed. What Python does with hooks of modules,
// which LibTorch doesn't have, is done here by its dispatcher: a marked tensor has one more
// dispatch key, of the highest rank, and the kernel of that key asks the storage's owner for the
// memory before it has the operator run. Views of a marked tensor are marked, and so are the copies
// of the handle that autograd saves: backward passes, and activations that are computed again, ask
// as the forward pass does. docs/decisions, 86.

// Has the memory of storages, which it has numbered.
class StorageOwner {
 public:
  StorageOwner() = default;
  virtual ~StorageOwner() = default;
  StorageOwner(const StorageOwner&) = delete;
  StorageOwner& operator=(const StorageOwner&) = delete;

  // An operator is going to use all of these: they must have their memory when this returns, and
  // keep it until the next call. In the order of the operator's arguments. May throw.
  virtual void BeforeUse(const std::vector<size_t>& storages) = 0;
  // It has changed these.
  virtual void AfterWrite(const std::vector<size_t>& storages) = 0;
  // Whether all have their memory until further notice.
  virtual bool Holds() const = 0;
};

// The same tensor, marked; for torch::Tensor::set_data.
torch::Tensor Marked(const torch::Tensor& tensor);
bool IsMarked(const torch::Tensor& tensor);
// Whether its memory can be read without asking anybody: it isn't marked, or all is held.
bool StaysInMemory(const torch::Tensor& tensor);

// From now on marked tensors there ask `owner`. Requires: both live until Disown.
// Threads: any, for different storages.
void Own(const c10::StorageImpl& storage, StorageOwner& owner, size_t number);
void Disown(const c10::StorageImpl& storage);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_STORAGE_ON_USE_H_
