#include "worker/torch/checkpoint/background_write.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "ddprun/parameters.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/optim/not_finite.h"
#include "worker/torch/optim/storage_on_use.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"

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

namespace {

NotFinite FoundIn(const CheckpointTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found != tensors.end() ? FindNotFinite(found->second) : NotFinite::kNothing;
}

}  // namespace

FiniteWatch::FiniteWatch(const torch::nn::Module& module, torch::optim::Optimizer& optimizer) {
  auto* zero = dynamic_cast<ZeroOptimizer*>(&optimizer);
  for (const NamedTensor& parameter : NamedParameters(module)) {
    // Parameters that stage 3 has shared out aren't whole here; SetUpZero has checked them.
    const bool is_finite =
        StaysInMemory(parameter.tensor)
            ? FindNotFinite(parameter.tensor) == NotFinite::kNothing
            : zero == nullptr || !zero->implementation().not_finite.contains(parameter.name);
    if (is_finite) parameters_.push_back(parameter.name);
  }
}

std::string FiniteWatch::FindBad(const CheckpointTensors& tensors) const {
  for (const std::string& name : parameters_) {
    const NotFinite found = FoundIn(tensors, kModelPrefix + name);
    if (found == NotFinite::kNothing) continue;
    return absl::StrCat("the parameter '", name, "' has ",
                        found == NotFinite::kNan ? "a NaN" : "an infinite value");
  }
  for (const auto& [name, tensor] : tensors) {
    if (!absl::StartsWith(name, kOptimizerPrefix) || accepted_.contains(name)) continue;
    if (FindNotFinite(tensor) == NotFinite::kNan) {
      return absl::StrCat("'", name, "' has a NaN");
    }
  }
  return "";
}

void FiniteWatch::Accept(const CheckpointTensors& tensors) {
  std::erase_if(parameters_, [&](const std::string& name) {
    return FoundIn(tensors, kModelPrefix + name) != NotFinite::kNothing;
  });
  for (const auto& [name, tensor] : tensors) {
    if (!absl::StartsWith(name, kOptimizerPrefix)) continue;
    if (FindNotFinite(tensor) == NotFinite::kNan) accepted_.insert(name);
  }
}

}  // namespace ddprun::worker
