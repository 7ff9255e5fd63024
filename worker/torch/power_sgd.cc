#include "ddprun/power_sgd.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <atomic>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

// A gradient G (n x m) as P (n x r) times the transpose of Q (m x r).
struct LowRank {
  torch::Tensor gradient;  // a view into the bucket
  torch::Tensor p;
  torch::Tensor q;
  torch::Tensor error;  // what the last step lost; undefined before it
};

struct BucketState {
  std::vector<std::vector<int64_t>> shapes;  // of the gradients it was made for
  std::vector<LowRank> matrices;
};

// Gram-Schmidt, which beats QR for few columns and also works in half precision.
void OrthogonalizeColumns(torch::Tensor& matrix, double epsilon) {
  const int64_t columns = matrix.size(1);
  for (int64_t i = 0; i < columns; ++i) {
    torch::Tensor column = matrix.slice(1, i, i + 1);
    column.div_(column.norm() + epsilon);
    if (i + 1 == columns) break;
    torch::Tensor rest = matrix.slice(1, i + 1);
    rest.sub_((column * rest).sum(0, /*keepdim=*/true) * column);
  }
}

void Orthogonalize(torch::Tensor& matrix, double epsilon) {
  const bool half =
      matrix.scalar_type() == torch::kHalf || matrix.scalar_type() == torch::kBFloat16;
  if (matrix.size(1) <= 2 || half) return OrthogonalizeColumns(matrix, epsilon);
  matrix = std::get<0>(at::linalg_qr(matrix));
}

// Copies consecutive parts of `flat` into `tensors`, from `offset` on; answers where they end.
int64_t Unpack(const torch::Tensor& flat, int64_t offset,
               const std::vector<torch::Tensor>& tensors) {
  for (const torch::Tensor& tensor : tensors) {
    tensor.copy_(flat.slice(0, offset, offset + tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
  return offset;
}

torch::Tensor Pack(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> flat;
  flat.reserve(tensors.size());
  for (const torch::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

std::vector<std::vector<int64_t>> ShapesOf(const std::vector<torch::Tensor>& tensors) {
  std::vector<std::vector<int64_t>> shapes;
  for (const torch::Tensor& tensor : tensors) shapes.push_back(tensor.sizes().vec());
  return shapes;
}

absl::Status CheckPowerSgdOptions(const PowerSgdOptions& options) {
  const auto bad = [](const char* name, double value, const char* range) {
    return absl::InvalidArgumentError(
        absl::StrCat("PowerSgdOptions::", name, " is ", value, "; give a number ", range));
  };
  if (options.matrix_approximation_rank < 1) {
    return bad("matrix_approximation_rank", static_cast<double>(options.matrix_approximation_rank),
               "from 1");
  }
  if (options.start_step < 2) {
    return bad("start_step", static_cast<double>(options.start_step), "from 2");
  }
  if (!(options.min_compression_rate >= 0)) {
    return bad("min_compression_rate", options.min_compression_rate, "from 0");
  }
  if (!(options.orthogonalization_epsilon >= 0)) {
    return bad("orthogonalization_epsilon", options.orthogonalization_epsilon, "from 0");
  }
  return absl::OkStatus();
}

}  // namespace

struct PowerSgd::Implementation {
  explicit Implementation(const PowerSgdOptions& wanted) : options(wanted) {}

  // Sorts the gradients into those that pay and the others.
  void Split(const GradientBucket& bucket, BucketState& state, std::vector<torch::Tensor>& rest);
  // Adds the last step's loss, and makes P from the gradient and the last step's Q.
  void MakeP(LowRank& matrix, uint64_t draw) const;
  absl::Status Compress(GradientBucket& bucket, Group& group);

  const PowerSgdOptions options;
  int64_t step = 0;
  std::unordered_map<size_t, BucketState> buckets;  // by index
  std::atomic<int64_t> values = 0;                  // since compression began
  std::atomic<int64_t> sent_values = 0;
};

void PowerSgd::Implementation::Split(const GradientBucket& bucket, BucketState& state,
                                     std::vector<torch::Tensor>& rest) {
  std::vector<std::vector<int64_t>> shapes = ShapesOf(bucket.gradients);
  const bool same = state.shapes == shapes;
  if (!same) state = {.shapes = std::move(shapes)};
  size_t next = 0;
  for (const torch::Tensor& gradient : bucket.gradients) {
    values += gradient.numel();
    const int64_t rows = gradient.dim() > 0 ? gradient.size(0) : 1;
    const int64_t columns = gradient.numel() / std::max<int64_t>(rows, 1);
    const int64_t rank = std::min({rows, columns, options.matrix_approximation_rank});
    const int64_t compressed = (rows + columns) * rank;
    const bool pays =
        gradient.dim() > 0 && static_cast<double>(compressed) * options.min_compression_rate <
                                  static_cast<double>(gradient.numel());
    sent_values += pays ? compressed : gradient.numel();
    if (!pays) {
      rest.push_back(gradient);
      continue;
    }
    if (!same) state.matrices.emplace_back();
    state.matrices[next++].gradient = gradient.view({rows, columns});
  }
}

void PowerSgd::Implementation::MakeP(LowRank& matrix, uint64_t draw) const {
  torch::Tensor& gradient = matrix.gradient;
  if (matrix.error.defined()) gradient.add_(matrix.error);
  if (options.error_feedback) matrix.error = gradient.clone();
  if (!matrix.q.defined() || !options.warm_start) {
    const int64_t rank =
        std::min({gradient.size(0), gradient.size(1), options.matrix_approximation_rank});
    const at::Generator generator = at::detail::createCPUGenerator(draw);
    matrix.q = at::randn({gradient.size(1), rank}, generator).to(gradient.options());
  }
  Orthogonalize(matrix.q, options.orthogonalization_epsilon);
  matrix.p = gradient.mm(matrix.q);
}

absl::Status PowerSgd::Implementation::Compress(GradientBucket& bucket, Group& group) {
  BucketState& state = buckets[bucket.index];
  std::vector<torch::Tensor> rest;
  Split(bucket, state, rest);
  // The same numbers on every rank, others for each matrix and step.
  uint64_t draw = options.seed + static_cast<uint64_t>(step) * 1000003 + bucket.index * 1009;
  std::vector<torch::Tensor> first = rest;
  for (LowRank& matrix : state.matrices) {
    MakeP(matrix, draw++);
    first.push_back(matrix.p);
  }
  torch::Tensor flat = Pack(first);
  DDPRUN_RETURN_IF_ERROR(group.AllReduceSum(flat));
  // P needs no division by the number of ranks, as its columns get length 1.
  int64_t end = 0;
  for (const torch::Tensor& gradient : rest) end += gradient.numel();
  flat.slice(0, 0, end).div_(group.world_size());
  Unpack(flat, 0, first);
  if (state.matrices.empty()) return absl::OkStatus();

  std::vector<torch::Tensor> second;
  for (LowRank& matrix : state.matrices) {
    Orthogonalize(matrix.p, options.orthogonalization_epsilon);
    matrix.q = matrix.gradient.t().mm(matrix.p);
    second.push_back(matrix.q);
  }
  flat = Pack(second);
  DDPRUN_RETURN_IF_ERROR(group.AllReduceSum(flat));
  flat.div_(group.world_size());
  Unpack(flat, 0, second);
  for (LowRank& matrix : state.matrices) {
    matrix.gradient.copy_(matrix.p.mm(matrix.q.t()));
    if (options.error_feedback) matrix.error.sub_(matrix.gradient);
  }
  return absl::OkStatus();
}

PowerSgd::PowerSgd(const PowerSgdOptions& options)
    : implementation_(std::make_unique<Implementation>(options)) {}

PowerSgd::~PowerSgd() = default;

absl::Status PowerSgd::Average(GradientBucket& bucket, Group& group) {
  Implementation& hook = *implementation_;
  DDPRUN_RETURN_IF_ERROR(CheckPowerSgdOptions(hook.options));
  absl::Status status;
  if (hook.step < hook.options.start_step) {
    bucket.buffer.div_(group.world_size());
    status = group.AllReduceSum(bucket.buffer);
  } else {
    status = hook.Compress(bucket, group);
  }
  if (bucket.is_last) ++hook.step;
  return status;
}

double PowerSgd::sent_share() const {
  const int64_t values = implementation_->values;
  if (values == 0) return 1;
  return static_cast<double>(implementation_->sent_values) / static_cast<double>(values);
}

}  // namespace ddprun
