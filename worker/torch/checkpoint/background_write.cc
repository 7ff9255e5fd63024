#include "worker/torch/checkpoint/background_write.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {

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
    CopyTensor(tensor, copy);
  }
  copies_ = taken;
  return taken;
}

BackgroundWrite::~BackgroundWrite() { Abandon(); }

void BackgroundWrite::Start(std::function<absl::Status()> write) {
  DDPRUN_CHECK(!is_open(), "two writes at once");
  is_done_ = false;
  thread_ = std::thread([this, write = std::move(write)] {
    written_ = CatchExceptions(write);
    const std::lock_guard<std::mutex> lock(mutex_);
    is_done_ = true;
    changed_.notify_all();
  });
}

bool BackgroundWrite::Await(const std::stop_token& stop) {
  if (!is_open()) return true;
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait(lock, stop, [this] { return is_done_; });
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
