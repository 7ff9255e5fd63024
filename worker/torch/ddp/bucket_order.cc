#include "worker/torch/ddp/bucket_order.h"

#include <torch/utils.h>

#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/torch/ddp/distributed_data_parallel_implementation.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {
namespace {

constexpr const char* kOptions = "options";
constexpr const char* kParameters = "parameters";  // in the order of buckets and places
constexpr const char* kCounts = "counts";          // of parameters, by bucket
constexpr const char* kViews = "views";            // by parameter: its gradient is one

torch::Tensor ToTensor(const std::vector<int64_t>& numbers) { return torch::tensor(numbers); }

absl::StatusOr<std::vector<int64_t>> NumbersOf(const CheckpointedState::Tensors& state,
                                               const char* name) {
  const auto found = state.find(name);
  if (found == state.end() || found->second.scalar_type() != torch::kLong) {
    return absl::FailedPreconditionError(absl::StrCat("a buckets' state has no '", name, "'"));
  }
  const torch::Tensor numbers = found->second.contiguous();
  const auto* first = numbers.const_data_ptr<int64_t>();
  return std::vector<int64_t>(first, first + numbers.numel());
}

}  // namespace

absl::StatusOr<std::vector<std::vector<size_t>>> CutBuckets(const std::vector<int64_t>& order,
                                                            const std::vector<int64_t>& counts,
                                                            size_t parameters) {
  const auto wrong = [&](const std::string& what) {
    return absl::FailedPreconditionError(
        absl::StrCat("buckets of ", parameters, " parameters: ", what));
  };
  std::vector<bool> seen(parameters, false);
  std::vector<std::vector<size_t>> buckets;
  size_t place = 0;
  for (const int64_t count : counts) {
    if (count < 1 || static_cast<size_t>(count) > order.size() - place) {
      return wrong(absl::StrCat("one has ", count, " of the ", order.size() - place, " left"));
    }
    buckets.emplace_back();
    for (int64_t i = 0; i < count; ++i) {
      const auto number = static_cast<size_t>(order[place++]);
      if (number >= parameters || seen[number]) {
        return wrong(absl::StrCat("number ", order[place - 1], " isn't one, or comes twice"));
      }
      seen[number] = true;
      buckets.back().push_back(number);
    }
  }
  if (place != parameters || order.size() != parameters) {
    return wrong(absl::StrCat(place, " have a place"));
  }
  return buckets;
}

std::vector<int64_t> BucketOrder::Options() const {
  const DistributedDataParallelOptions& options = ddp_.options;
  constexpr double kBytesPerMebibyte = 1 << 20;
  return {static_cast<int64_t>(ddp_.parameters.size()),
          static_cast<int64_t>(options.bucket_cap_mb.value_or(0) * kBytesPerMebibyte),
          options.gradient_as_bucket_view ? 1 : 0, options.find_unused_parameters ? 1 : 0,
          options.static_graph ? 1 : 0};
}

CheckpointedState::Tensors BucketOrder::SaveState() const {
  std::unordered_map<const void*, int64_t> numbers;
  std::vector<int64_t> views;
  for (const torch::Tensor& parameter : ddp_.parameters) {
    numbers.emplace(parameter.unsafeGetTensorImpl(), static_cast<int64_t>(numbers.size()));
    views.push_back(ddp_.options.gradient_as_bucket_view && parameter.grad().defined() ? 1 : 0);
  }
  std::vector<int64_t> order;
  std::vector<int64_t> counts;
  for (const c10d::GradBucket& bucket : ddp_.reducer->get_grad_buckets(false)) {
    const std::vector<torch::Tensor> parameters = bucket.getParameters();
    counts.push_back(static_cast<int64_t>(parameters.size()));
    for (const torch::Tensor& parameter : parameters) {
      order.push_back(numbers.at(parameter.unsafeGetTensorImpl()));
    }
  }
  return {{kOptions, ToTensor(Options())},
          {kParameters, ToTensor(order)},
          {kCounts, ToTensor(counts)},
          {kViews, ToTensor(views)}};
}

absl::Status BucketOrder::RestoreState(const Tensors& state) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> options, NumbersOf(state, kOptions));
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> order, NumbersOf(state, kParameters));
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, NumbersOf(state, kCounts));
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> views, NumbersOf(state, kViews));
  if (options != Options()) return absl::OkStatus();
  std::vector<torch::Tensor>& parameters = ddp_.parameters;
  if (views.size() != parameters.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("a buckets' state has ", views.size(), " gradients for ", parameters.size()));
  }
  DDPRUN_ASSIGN_OR_RETURN(std::vector<std::vector<size_t>> buckets,
                          CutBuckets(order, counts, parameters.size()));
  return CatchExceptions([&] {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      torch::Tensor& gradient = parameters[i].mutable_grad();
      gradient.reset();
      if (views[i] != 0) gradient = torch::zeros_like(parameters[i]);
    }
    ddp_.reducer->initialize_buckets(std::move(buckets));
    return absl::OkStatus();
  });
}

}  // namespace ddprun::worker
