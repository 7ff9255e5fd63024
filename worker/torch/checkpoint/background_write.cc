#include "worker/torch/checkpoint/background_write.h"

#include <ATen/core/grad_mode.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/optim/storage_on_use.h"

namespace ddprun::worker {
namespace {

// Of as much as doesn't fit into the processor's caches, memcpy(3) writes past them; copy_ reads
// each line of what it is about to overwrite before, which takes half as long again.
void Copy(const torch::Tensor& from, torch::Tensor& to) {
  // Memory of a marked one comes when an operator uses it.
  const bool plain =
      from.is_cpu() && from.is_contiguous() && !from.is_conj() && !from.is_neg() && !IsMarked(from);
  if (!plain || from.nbytes() == 0) {
    to.copy_(from);
    return;
  }
  std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
}

}  // namespace

CheckpointTensors TensorCopies::Take(const CheckpointTensors& tensors) {
  const at::NoGradGuard no_grad;
  CheckpointTensors taken;
  for (const auto& [name, tensor] : tensors) {
    torch::Tensor& copy = taken[name];
    const auto former = copies_.find(name);
    if (former != copies_.end()) copy = former->second;
    if (!copy.defined() || copy.sizes() != tensor.sizes() || copy.dtype() != tensor.dtype()) {
      copy =
          torch::empty(tensor.sizes(),
                       torch::TensorOptions(tensor.scalar_type()).pinned_memory(tensor.is_cuda()));
    }
    Copy(tensor, copy);
  }
  copies_ = taken;
  return taken;
}

BackgroundWrite::~BackgroundWrite() { Abandon(); }

void BackgroundWrite::Start(std::function<absl::Status()> write) {
  DDPRUN_CHECK(!is_open(), "two writes at once");
  thread_ = std::thread([this, write = std::move(write)] { written_ = CatchExceptions(write); });
}

absl::Status BackgroundWrite::Finish() {
  if (!is_open()) return absl::OkStatus();
  thread_.join();
  return std::exchange(written_, absl::OkStatus());
}

void BackgroundWrite::Abandon() {
  const absl::Status written = Finish();
  if (!written.ok()) {
    Log(LogLevel::kError,
        absl::StrCat("the last checkpoint was not written: ", written.ToString()));
  }
}

}  // namespace ddprun::worker
