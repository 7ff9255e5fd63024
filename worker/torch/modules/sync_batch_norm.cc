#include "ddprun/sync_batch_norm.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/custom_function.h>

#include <ostream>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "worker/torch/context/context_implementation.h"

namespace ddprun::nn {

// Over all ranks' batches, a value a channel, in double.
struct SyncBatchNormImpl::Statistics {
  torch::Tensor mean;
  torch::Tensor variance;  // biased
  double count = 0;        // values a channel
};

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// All dimensions except the channels'.
std::vector<int64_t> ReducedDimensions(const torch::Tensor& input) {
  std::vector<int64_t> dimensions = {0};
  for (int64_t i = 2; i < input.dim(); ++i) dimensions.push_back(i);
  return dimensions;
}

// A value a channel, in a shape that broadcasts over `input`.
torch::Tensor OverChannels(const torch::Tensor& values, const torch::Tensor& input) {
  std::vector<int64_t> shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = input.size(1);
  return values.view(shape);
}

// The type that sums are made in.
torch::ScalarType WorkingType(const torch::Tensor& input) {
  return input.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
}

// Normalizes with statistics of all ranks' inputs, so the gradient of the statistics needs all
// ranks' gradients.
struct Normalize : torch::autograd::Function<Normalize> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input,
                               const torch::Tensor& weight, const torch::Tensor& bias,
                               const torch::Tensor& mean, const torch::Tensor& inverse_deviation,
                               double count, const c10::IValue& group) {
    context->save_for_backward({input, weight, mean, inverse_deviation});
    context->saved_data["count"] = count;
    context->saved_data["group"] = group;
    torch::Tensor output = (input.to(mean.scalar_type()) - OverChannels(mean, input)) *
                           OverChannels(inverse_deviation, input);
    if (weight.defined()) {
      output = output * OverChannels(weight, input) + OverChannels(bias, input);
    }
    return output.to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const torch::Tensor &input = saved[0], &weight = saved[1], &mean = saved[2],
                        &inverse_deviation = saved[3];
    const std::vector<int64_t> dimensions = ReducedDimensions(input);
    const torch::Tensor normalized = (input.to(mean.scalar_type()) - OverChannels(mean, input)) *
                                     OverChannels(inverse_deviation, input);
    const torch::Tensor gradient = gradients[0].to(mean.scalar_type());
    const torch::Tensor bias_gradient = gradient.sum(dimensions);
    const torch::Tensor weight_gradient = (gradient * normalized).sum(dimensions);

    std::vector<torch::Tensor> sums = {at::cat({bias_gradient, weight_gradient})};
    const auto group = c10::static_intrusive_pointer_cast<c10d::ProcessGroup>(
        context->saved_data["group"].toCapsule());
    group->allreduce(sums)->wait();
    const std::vector<torch::Tensor> means =
        (sums[0] / context->saved_data["count"].toDouble()).chunk(2);
    torch::Tensor scale = inverse_deviation;
    if (weight.defined()) scale = scale * weight;
    const torch::Tensor input_gradient =
        (gradient - OverChannels(means[0], input) - normalized * OverChannels(means[1], input)) *
        OverChannels(scale, input);
    const auto if_affine = [&](const torch::Tensor& of_parameter) {
      return weight.defined() ? of_parameter.to(weight.scalar_type()) : torch::Tensor();
    };
    return {input_gradient.to(input.scalar_type()),
            if_affine(weight_gradient),
            if_affine(bias_gradient),
            torch::Tensor(),
            torch::Tensor(),
            torch::Tensor(),
            torch::Tensor()};
  }
};

}  // namespace

SyncBatchNormImpl::SyncBatchNormImpl(int64_t features, Context& context,
                                     const SyncBatchNormOptions& options)
    : features_(features), context_(&context), options_(options) {
  TORCH_CHECK(features >= 1, "SyncBatchNorm: features is ", features, "; give a number from 1");
  reset();
}

void SyncBatchNormImpl::reset() {
  if (options_.affine) {
    weight = register_parameter("weight", torch::ones({features_}));
    bias = register_parameter("bias", torch::zeros({features_}));
  }
  if (options_.track_running_stats) {
    running_mean = register_buffer("running_mean", torch::zeros({features_}));
    running_var = register_buffer("running_var", torch::ones({features_}));
    num_batches_tracked = register_buffer("num_batches_tracked", torch::zeros({}, torch::kLong));
  }
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "ddprun::nn::SyncBatchNorm(" << features_ << ", eps=" << options_.eps
         << ", affine=" << options_.affine
         << ", track_running_stats=" << options_.track_running_stats << ")";
}

// Each rank sends its mean, its variance and its number of values. They are merged as in Chan,
// Golub, LeVeque: Updating formulae for computing sample variances, 1979, because sums of squares
// would cancel.
SyncBatchNormImpl::Statistics SyncBatchNormImpl::JoinedStatistics(
    const torch::Tensor& input) const {
  const torch::TensorOptions options = input.options().dtype(WorkingType(input));
  torch::Tensor mean = torch::zeros({features_}, options);
  torch::Tensor variance = torch::zeros({features_}, options);
  if (input.numel() > 0) {
    std::tie(variance, mean) =
        at::var_mean(input.to(options.dtype()), ReducedDimensions(input), /*unbiased=*/false);
  }
  const int64_t values = input.numel() / features_;
  const int64_t counted = context_->implementation().counts_no_samples ? 0 : values;
  const torch::TensorOptions in_double = options.dtype(torch::kDouble);
  std::vector<torch::Tensor> mine = {
      at::cat({torch::full({1}, values, in_double), torch::full({1}, counted, in_double),
               mean.to(torch::kDouble), variance.to(torch::kDouble)})};
  std::vector<std::vector<torch::Tensor>> gathered(1);
  for (uint32_t rank = 0; rank < context_->world_size(); ++rank) {
    gathered[0].push_back(torch::empty_like(mine[0]));
  }
  context_->implementation().group->allgather(gathered, mine)->wait();

  const torch::Tensor all = torch::stack(gathered[0]);
  torch::Tensor counts = all.slice(1, 1, 2);
  const torch::Tensor means = all.slice(1, 2, 2 + features_);
  const torch::Tensor variances = all.slice(1, 2 + features_);
  // One value has no variance. If an epoch leaves no more for its last step, samples count that
  // otherwise don't: training goes on.
  if (counts.sum().item<double>() <= 1) counts = all.slice(1, 0, 1);
  Statistics statistics;
  statistics.count = counts.sum().item<double>();
  TORCH_CHECK(statistics.count > 1, "SyncBatchNorm: all ranks together have ", statistics.count,
              " value(s) a channel; training needs at least 2");
  statistics.mean = (means * counts).sum(0) / statistics.count;
  statistics.variance =
      ((variances + (means - statistics.mean).square()) * counts).sum(0) / statistics.count;
  return statistics;
}

void SyncBatchNormImpl::Track(const Statistics& statistics) {
  if (!options_.track_running_stats) return;
  num_batches_tracked.add_(1);
  const double share =
      options_.momentum.value_or(1.0 / static_cast<double>(num_batches_tracked.item<int64_t>()));
  const double unbiased = statistics.count / (statistics.count - 1);
  running_mean.mul_(1 - share).add_(statistics.mean.to(running_mean.scalar_type()), share);
  running_var.mul_(1 - share).add_((statistics.variance * unbiased).to(running_var.scalar_type()),
                                   share);
}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  TORCH_CHECK(input.dim() >= 2 && input.size(1) == features_, "SyncBatchNorm: input is ",
              input.sizes(), "; it must be [n, ", features_, ", ...]");
  // `alone`: a peer is gone, so this step's result doesn't count.
  if (!is_training() || context_->world_size() == 1 || context_->implementation().alone) {
    const bool by_batch = is_training() || !options_.track_running_stats;
    if (is_training() && options_.track_running_stats) num_batches_tracked.add_(1);
    const double share = !is_training() || !options_.track_running_stats
                             ? 0.0
                             : options_.momentum.value_or(
                                   1.0 / static_cast<double>(num_batches_tracked.item<int64_t>()));
    return at::batch_norm(input, weight, bias, running_mean, running_var, by_batch, share,
                          options_.eps, /*cudnn_enabled=*/true);
  }
  Statistics statistics;
  {
    const torch::NoGradGuard no_grad;
    statistics = JoinedStatistics(input.detach());
    Track(statistics);
  }
  const torch::ScalarType type = WorkingType(input);
  return Normalize::apply(input, weight, bias, statistics.mean.to(type),
                          (statistics.variance + options_.eps).rsqrt().to(type), statistics.count,
                          c10::IValue::make_capsule(context_->implementation().group));
}

}  // namespace ddprun::nn
