#include "ddprun/exponential_moving_average.h"

#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>
#include <torch/utils.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "ddprun/parameters.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/optim/master_parameters.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"
#include "worker/torch/zero/zero_shares.h"

namespace ddprun {
namespace {

constexpr const char* kField = "average";
// Marks a share of an average that has begun, because a rank may have no piece of it.
constexpr const char* kHasBegun = "averaged";

// Null: the optimizer isn't a ZeroOptimizer.
ZeroImplementation* ZeroOf(torch::optim::Optimizer& optimizer) {
  auto* zero = dynamic_cast<ZeroOptimizer*>(&optimizer);
  return zero != nullptr ? &zero->implementation() : nullptr;
}

// The parameters that are averaged if parameters are whole on each rank.
std::vector<NamedTensor> AveragedParameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> parameters;
  for (NamedTensor& parameter : NamedParameters(module)) {
    if (parameter.tensor.is_floating_point()) parameters.push_back(std::move(parameter));
  }
  return parameters;
}

// At least float32: narrower types would round a step of 1e-3 of the difference to nothing.
torch::ScalarType AverageType(const torch::Tensor& parameter) {
  return parameter.element_size() < 4 ? torch::kFloat : parameter.scalar_type();
}

absl::Status Misfit(const std::string& name, absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat("the average of the parameters is of another model: that of '", name, "' ", what,
                   "; use the model it was saved with"));
}

}  // namespace

ExponentialMovingAverage::ExponentialMovingAverage(std::shared_ptr<torch::nn::Module> module,
                                                   torch::optim::Optimizer& optimizer, double decay)
    : module_(std::move(module)), optimizer_(optimizer), decay_(decay) {
  DDPRUN_CHECK(decay >= 0 && decay < 1, absl::StrCat("a decay of ", decay));
}

std::vector<torch::Tensor> ExponentialMovingAverage::Parameters() const {
  std::vector<torch::Tensor> parameters;
  if (const ZeroImplementation* zero = ZeroOf(optimizer_)) {
    for (const worker::ZeroPieceTensor& piece : zero->storage->pieces()) {
      parameters.push_back(piece.tensor);
    }
  } else {
    for (const NamedTensor& parameter : AveragedParameters(*module_)) {
      parameters.push_back(parameter.tensor);
    }
  }
  return parameters;
}

std::vector<torch::Tensor> ExponentialMovingAverage::Values() const {
  const ZeroImplementation* zero = ZeroOf(optimizer_);
  const torch::optim::Optimizer& steps = zero != nullptr ? *zero->inner : optimizer_;
  std::vector<torch::Tensor> values;
  for (const torch::Tensor& parameter : Parameters()) {
    const torch::Tensor master = worker::MasterOf(steps, parameter);
    values.push_back(master.defined() ? master : parameter);
  }
  return values;
}

void ExponentialMovingAverage::Update() {
  DDPRUN_CHECK(!in_place_, "Update() while the averages are in the parameters' place");
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor> values = Values();
  if (!std::exchange(has_begun_, true)) {
    for (const torch::Tensor& value : values) {
      averages_.push_back(value.to(AverageType(value), /*non_blocking=*/false, /*copy=*/true));
    }
    return;
  }
  std::vector<torch::Tensor> averages;
  std::vector<torch::Tensor> same_type;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].scalar_type() == averages_[i].scalar_type()) {
      averages.push_back(averages_[i]);
      same_type.push_back(values[i]);
    } else {
      averages_[i].lerp_(values[i].to(averages_[i].scalar_type()), 1 - decay_);
    }
  }
  if (!averages.empty()) at::_foreach_lerp_(averages, same_type, 1 - decay_);
}

void ExponentialMovingAverage::Forget() {
  has_begun_ = false;
  averages_.clear();
}

void ExponentialMovingAverage::Publish() {
  if (ZeroImplementation* zero = ZeroOf(optimizer_)) worker::PublishShares(*zero);
}

ExponentialMovingAverage::InPlace::InPlace(ExponentialMovingAverage& average)
    : average_(average), exceptions_(std::uncaught_exceptions()) {
  DDPRUN_CHECK(!average.in_place_, "a second InPlace while one lives");
  if (!average.has_begun()) return;
  const torch::NoGradGuard no_grad;
  average.BeforeChange();
  const std::vector<torch::Tensor> parameters = average.Parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    kept_.push_back(parameters[i].clone());
    parameters[i].copy_(average.averages_[i]);
  }
  average.in_place_ = true;
  try {
    average.Publish();
  } catch (...) {
    PutBackOwn();
    throw;
  }
}

void ExponentialMovingAverage::InPlace::PutBackOwn() {
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor> parameters = average_.Parameters();
  for (size_t i = 0; i < kept_.size(); ++i) parameters[i].copy_(kept_[i]);
  kept_.clear();
  average_.in_place_ = false;
}

absl::Status ExponentialMovingAverage::InPlace::PutBack() {
  if (!average_.in_place_) return absl::OkStatus();
  return worker::CatchExceptions([this]() -> absl::Status {
    average_.BeforeChange();
    PutBackOwn();
    average_.Publish();
    return absl::OkStatus();
  });
}

ExponentialMovingAverage::InPlace::~InPlace() {
  const absl::Status put_back = worker::CatchExceptions([this]() -> absl::Status {
    if (std::uncaught_exceptions() == exceptions_) return PutBack();
    if (average_.in_place_) PutBackOwn();
    return absl::OkStatus();
  });
  if (put_back.ok()) return;
  Log(LogLevel::kWarning, absl::StrCat("the parameters could not be put back in place of their "
                                       "averages: ",
                                       put_back.message()));
}

void ExponentialMovingAverage::BeforeChange() {
  if (ZeroImplementation* zero = ZeroOf(optimizer_)) worker::BeforeSharesChange(*zero);
}

absl::StatusOr<ExponentialMovingAverage::Tensors> ExponentialMovingAverage::Whole(
    uint32_t target) const {
  if (in_place_) {
    return absl::FailedPreconditionError(
        "the averages are in the parameters' place: end the ExponentialMovingAverage::InPlace "
        "before a checkpoint is saved");
  }
  Tensors whole;
  if (!has_begun()) return whole;
  if (const ZeroImplementation* zero = ZeroOf(optimizer_)) {
    return worker::CatchExceptions([&]() -> absl::StatusOr<Tensors> {
      const torch::NoGradGuard no_grad;
      const auto& pieces = zero->storage->pieces();
      return worker::GatherShares(*zero, target, [&](size_t bucket) {
        const torch::Tensor& updated = zero->storage->buckets()[bucket].updated;
        torch::Tensor share =
            at::zeros(updated.sizes(), updated.options().dtype(AverageType(updated)));
        for (size_t i = 0; i < pieces.size(); ++i) {
          if (pieces[i].piece.bucket != bucket) continue;
          worker::ZeroStorage::PartOf(pieces[i].piece, share).copy_(averages_[i]);
        }
        return share;
      });
    });
  }
  const std::vector<NamedTensor> parameters = AveragedParameters(*module_);
  for (size_t i = 0; i < parameters.size(); ++i) whole[parameters[i].name] = averages_[i];
  return whole;
}

absl::Status ExponentialMovingAverage::Restore(const Tensors& whole) {
  if (whole.empty()) {
    Forget();
    return absl::OkStatus();
  }
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> averages;
  // `part`: of the flattened average, what this rank averages; in place of `parameter`.
  const auto take = [&](const NamedTensor& parameter, const auto& part,
                        const torch::Tensor& like) -> absl::Status {
    const auto found = whole.find(parameter.name);
    if (found == whole.end()) return Misfit(parameter.name, "is missing");
    if (found->second.sizes() != parameter.tensor.sizes()) {
      return Misfit(parameter.name, "has another shape");
    }
    const torch::Tensor copy =
        part(found->second).to(like.device(), AverageType(like), false, /*copy=*/true);
    averages.push_back(worker::InOrderOf(like, copy));
    return absl::OkStatus();
  };
  if (const ZeroImplementation* zero = ZeroOf(optimizer_)) {
    for (const worker::ZeroPieceTensor& own : zero->storage->pieces()) {
      const worker::ZeroParameter& parameter = zero->storage->parameters()[own.piece.parameter];
      const auto part = [&](const torch::Tensor& tensor) {
        return tensor.reshape({-1}).narrow(0, own.piece.begin, own.piece.length);
      };
      DDPRUN_RETURN_IF_ERROR(
          take({.name = parameter.name, .tensor = parameter.tensor}, part, own.tensor));
    }
  } else {
    for (const NamedTensor& parameter : AveragedParameters(*module_)) {
      const auto all = [](const torch::Tensor& tensor) { return tensor; };
      DDPRUN_RETURN_IF_ERROR(take(parameter, all, parameter.tensor));
    }
  }
  has_begun_ = true;
  averages_ = std::move(averages);
  return absl::OkStatus();
}

ExponentialMovingAverage::Tensors ExponentialMovingAverage::OwnShare() const {
  Tensors share;
  if (!has_begun()) return share;
  share = worker::NamePieces(*ZeroOf(optimizer_), kField, averages_);
  share[kHasBegun] = at::zeros({1}, torch::kByte);
  return share;
}

absl::Status ExponentialMovingAverage::RestoreShare(const Tensors& parts) {
  std::vector<torch::Tensor> averages;
  const bool has_begun = parts.contains(kHasBegun);
  if (has_begun) {
    DDPRUN_ASSIGN_OR_RETURN(averages, worker::CutPieces(*ZeroOf(optimizer_), kField, parts));
  }
  has_begun_ = has_begun;
  averages_ = std::move(averages);
  return absl::OkStatus();
}

}  // namespace ddprun
