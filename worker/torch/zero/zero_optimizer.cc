#include "ddprun/zero_optimizer.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/full.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <exception>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "ddprun/clip_grad_norm.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/parameters.h"
#include "worker/torch/collectives/collectives.h"
#include "worker/torch/collectives/single_tensor_collectives.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/optim/master_parameters.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"
#include "worker/torch/zero/zero_setup.h"
#include "worker/torch/zero/zero_shares.h"

namespace ddprun {
namespace {

using torch::optim::OptimizerParamGroup;
using worker::ZeroBucket;
using worker::ZeroPieceTensor;

// Drops the gradient, or zeroes it if it is a view of a larger tensor that is still in use.
void ClearGradient(const torch::Tensor& tensor) {
  torch::Tensor& gradient = tensor.mutable_grad();
  if (!gradient.defined()) return;
  if (gradient.has_storage() && gradient.storage().nbytes() > gradient.nbytes()) {
    gradient.zero_();
  } else {
    gradient.reset();
  }
}

void NotifyMemory(const Context::Implementation& place, const ZeroMemory& memory, int stage) {
  const std::string text = absl::StrCat("rank ", place.plan.rank, " of ", place.plan.world_size,
                                        ", ZeRO-", stage, ": ", memory.ToText());
  if (place.plan.rank == 0) {
    Notify(text);
  } else {
    Log(LogLevel::kInfo, text);
  }
}

}  // namespace

ZeroOptimizer::ZeroOptimizer(std::unique_ptr<Implementation> implementation)
    : Optimizer(implementation->inner->param_groups(), implementation->inner->defaults().clone()),
      implementation_(std::move(implementation)) {}

ZeroOptimizer::~ZeroOptimizer() = default;

absl::StatusOr<std::unique_ptr<ZeroOptimizer>> ZeroOptimizer::Create(
    std::shared_ptr<torch::nn::Module> module, Context& context, const MakeOptimizer& make,
    ZeroOptions options) {
  auto implementation = std::make_unique<Implementation>();
  implementation->module = std::move(module);
  implementation->options = std::move(options);
  implementation->make = make;
  DDPRUN_RETURN_IF_ERROR(
      worker::CatchExceptions([&] { return worker::SetUpZero(*implementation, context); }));
  return std::unique_ptr<ZeroOptimizer>(new ZeroOptimizer(std::move(implementation)));
}

absl::StatusOr<std::unique_ptr<ZeroOptimizer>> ZeroOptimizer::Create(
    std::shared_ptr<torch::nn::Module> module, Context& context,
    const torch::optim::AdamWOptions& adamw, ZeroOptions options) {
  const MakeOptimizer make = [adamw](const std::vector<OptimizerParamGroup>& groups) {
    return std::make_unique<FusedAdamW>(groups, adamw);
  };
  return Create(std::move(module), context, make, std::move(options));
}

absl::StatusOr<std::unique_ptr<ZeroOptimizer>> ZeroOptimizer::Create(
    std::shared_ptr<torch::nn::Module> module, Context& context,
    const torch::optim::SGDOptions& sgd, ZeroOptions options) {
  const MakeOptimizer make = [sgd](const std::vector<OptimizerParamGroup>& groups) {
    return std::make_unique<FusedSGD>(groups, sgd);
  };
  return Create(std::move(module), context, make, std::move(options));
}

void ZeroOptimizer::EndTraining() {
  if (implementation_->gatherer.has_value()) implementation_->gatherer->EndTraining();
}

void ZeroOptimizer::LetGo() {
  implementation_->reducer.reset();
  implementation_->gatherer.reset();
  implementation_->group.reset();
}

absl::Status ZeroOptimizer::Rejoin(Context& context, bool init_sync) {
  Implementation& self = *implementation_;
  LetGo();
  self.options.init_sync = init_sync;
  DDPRUN_RETURN_IF_ERROR(worker::CatchExceptions([&] { return worker::SetUpZero(self, context); }));
  for (size_t i = 0; i < param_groups_.size(); ++i) {
    param_groups_[i].params() = self.inner->param_groups()[i].params();
  }
  return absl::OkStatus();
}

void ZeroImplementation::TakeAveragedGradients() {
  for (ZeroPieceTensor& piece : storage->pieces()) {
    const torch::Tensor& whole = storage->parameters()[piece.piece.parameter].tensor.grad();
    torch::Tensor& gradient = piece.tensor.mutable_grad();
    if (!whole.defined()) {
      gradient.reset();
      continue;
    }
    TORCH_CHECK(!whole.is_sparse(), "ZeroOptimizer does not support sparse gradients");
    const torch::Tensor part =
        whole.detach().reshape({-1}).narrow(0, piece.piece.begin, piece.piece.length);
    if (!storage->offloads()) {
      gradient = part;
      continue;
    }
    gradient = worker::ZeroStorage::PartOf(
        piece.piece, worker::ZeroStorage::GradientOf(storage->buckets()[piece.piece.bucket]));
    gradient.copy_(part);
  }
}

void ZeroImplementation::GatherParameters() {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::vector<torch::Tensor> inputs;
  for (ZeroBucket& bucket : storage->buckets()) {
    // A copy, not a part of the output, because a backend may copy from one to the other.
    inputs.push_back(bucket.updated.is_same(bucket.share) ? bucket.share.clone()
                                                          : bucket.updated.to(device));
    works.push_back(worker::AllGatherTensor(*group, bucket.parameters, inputs.back()));
  }
  for (const auto& work : works) work->wait();
}

void ZeroImplementation::BroadcastBuffers() {
  std::vector<torch::Tensor> buffers;
  for (const torch::Tensor& buffer : Buffers(*module)) buffers.push_back(buffer.detach());
  if (!buffers.empty()) {
    c10d::broadcast_coalesced(group, buffers, worker::kZeroBroadcastBytes, /*rank=*/0);
  }
}

absl::Status ZeroImplementation::AwaitGroup() const {
  if (place->plan.abort == nullptr) return absl::OkStatus();
  return worker::AwaitResults(*group, device);
}

absl::Status ZeroOptimizer::FinishBackward() {
  Implementation& self = *implementation_;
  if (!self.reducer.has_value()) return absl::OkStatus();
  return worker::CatchExceptions([&] { return self.reducer->Finish(); });
}

absl::Status ZeroOptimizer::Step() {
  Implementation& self = *implementation_;
  ++self.steps_taken;
  DDPRUN_RETURN_IF_ERROR(FinishBackward());
  return worker::CatchExceptions([&]() -> absl::Status {
    const torch::NoGradGuard no_grad;
    const Instant begin = MonotonicNow();
    if (!self.reducer.has_value()) {
      if (!std::exchange(self.knows_averaging, true)) DDPRUN_RETURN_IF_ERROR(self.CheckAveraging());
      self.TakeAveragedGradients();
    }
    if (self.gatherer.has_value()) self.gatherer->Forget();
    // The options that a program sees and sets are this optimizer's.
    for (size_t i = 0; i < param_groups_.size(); ++i) {
      self.inner->param_groups()[i].set_options(param_groups_[i].options().clone());
    }
    DDPRUN_RETURN_IF_ERROR(self.AwaitGroup());
    self.inner->step();
    self.storage->PublishShares();
    const Instant updated = MonotonicNow();
    if (self.gatherer.has_value()) {
      self.gatherer->Renew();
    } else {
      self.GatherParameters();
    }
    if (self.reducer.has_value() && self.options.broadcast_buffers) self.BroadcastBuffers();
    DDPRUN_RETURN_IF_ERROR(self.AwaitGroup());
    self.update = updated - begin;
    self.gathering = MonotonicNow() - updated;
    if (!std::exchange(self.told_memory, true)) {
      NotifyMemory(*self.place, Memory(), self.options.stage);
    }
    return absl::OkStatus();
  });
}

torch::Tensor ZeroOptimizer::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  const absl::Status status = Step();
  if (!status.ok()) std::rethrow_exception(worker::ToException(status));
  return loss;
}

void ZeroOptimizer::ZeroGrad() {
  Implementation& self = *implementation_;
  if (self.reducer.has_value()) self.reducer->Reset();
  for (ZeroPieceTensor& piece : self.storage->pieces()) piece.tensor.mutable_grad().reset();
  for (const worker::ZeroParameter& parameter : self.storage->parameters()) {
    ClearGradient(parameter.tensor);
  }
}

void ZeroOptimizer::ParametersChanged() {
  worker::DropMasters(*implementation_->inner);
  worker::RenewCopies(*implementation_);
}

std::vector<torch::Tensor> ZeroOptimizer::ReducedGradients() {
  Implementation& self = *implementation_;
  const absl::Status status = FinishBackward();
  if (!status.ok()) std::rethrow_exception(worker::ToException(status));
  std::vector<torch::Tensor> gradients;
  const auto add = [&gradients](const torch::Tensor& tensor) {
    if (tensor.grad().defined()) gradients.push_back(tensor.grad().detach());
  };
  if (self.reducer.has_value()) {
    for (const ZeroPieceTensor& piece : self.storage->pieces()) add(piece.tensor);
  } else {
    for (const worker::ZeroParameter& parameter : self.storage->parameters()) add(parameter.tensor);
  }
  return gradients;
}

bool ZeroOptimizer::OnAnyRank(bool mine) {
  Implementation& self = *implementation_;
  if (!self.reducer.has_value()) return mine;
  torch::Tensor flag =
      at::full({1}, mine ? 1 : 0, torch::TensorOptions(self.device).dtype(torch::kInt));
  const absl::Status status = worker::AllReduce(*self.group, flag, c10d::ReduceOp::MAX);
  if (!status.ok()) std::rethrow_exception(worker::ToException(status));
  return flag.item<int>() != 0;
}

absl::StatusOr<double> ZeroOptimizer::ClipGradNorm(double max_norm) {
  Implementation& self = *implementation_;
  if (!self.reducer.has_value()) return ddprun::ClipGradNorm(*self.module, max_norm);
  return worker::CatchExceptions([&]() -> absl::StatusOr<double> {
    const torch::NoGradGuard no_grad;
    const std::vector<torch::Tensor> gradients = ReducedGradients();
    DDPRUN_ASSIGN_OR_RETURN(const double norm, worker::NormOverRanks(self, gradients));
    const double factor = max_norm / (norm + 1e-6);
    if (factor < 1 && !gradients.empty()) at::_foreach_mul_(gradients, factor);
    return norm;
  });
}

ZeroStatistics ZeroOptimizer::Statistics() const {
  const Implementation& self = *implementation_;
  ZeroStatistics statistics;
  for (const ZeroBucket& bucket : self.storage->buckets()) {
    statistics.bucket_bytes.push_back(static_cast<int64_t>(bucket.parameters.nbytes()));
  }
  statistics.update = self.update;
  statistics.gathering = self.gathering;
  if (!self.reducer.has_value()) return statistics;
  statistics.buckets_sent = self.reducer->buckets_sent();
  statistics.reduction = self.reducer->reduction();
  statistics.waiting = self.reducer->waiting();
  if (!self.gatherer.has_value()) return statistics;
  statistics.buckets_gathered = self.gatherer->gathered();
  statistics.buckets_prefetched = self.gatherer->foreseen();
  return statistics;
}

ZeroOptimizer::NoSync::NoSync(ZeroOptimizer& zero)
    : zero_(zero),
      before_(!zero.implementation_->reducer.has_value() ||
              zero.implementation_->reducer->synchronize()) {
  if (zero_.implementation_->reducer.has_value()) {
    zero_.implementation_->reducer->set_synchronize(false);
  }
}

ZeroOptimizer::NoSync::~NoSync() {
  if (zero_.implementation_->reducer.has_value()) {
    zero_.implementation_->reducer->set_synchronize(before_);
  }
}

ZeroOptimizer::WholeParameters::WholeParameters(ZeroOptimizer& zero)
    : zero_(zero), setup_(zero.implementation_->setups) {
  if (zero_.implementation_->gatherer.has_value()) zero_.implementation_->gatherer->Hold();
}

ZeroOptimizer::WholeParameters::~WholeParameters() {
  Implementation& self = *zero_.implementation_;
  if (self.gatherer.has_value() && self.setups == setup_) self.gatherer->Release();
}

}  // namespace ddprun
