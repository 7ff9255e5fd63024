#include "ddprun/power_sgd.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

// The state between steps of a parameter with a gradient (n x m) that is sent as P (n x r) times
// the transpose of Q (m x r). Undefined before the first step.
struct Memory {
  torch::Tensor q;
  torch::Tensor error;  // what the last step lost
};

// A gradient that is being averaged in this form.
struct LowRank {
  size_t parameter = 0;
  Memory* memory = nullptr;
  torch::Tensor gradient;  // a view into the bucket
  torch::Tensor sent;      // the gradient and the last step's error; aligned, unlike the view
  torch::Tensor p;
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

  // Divides the gradients into those for which compression pays and the `rest`.
  std::vector<LowRank> Split(const GradientBucket& bucket, std::vector<torch::Tensor>& rest);
  // Adds the last step's loss, and makes P from the gradient and the last step's Q.
  void MakeP(LowRank& matrix) const;
  // Q for the first step, or for each without a warm start: the same numbers on every rank.
  torch::Tensor DrawQ(const LowRank& matrix) const;
  absl::Status Compress(GradientBucket& bucket, Group& group);

  const PowerSgdOptions options;
  int64_t step = 0;
  std::map<size_t, Memory> memory;  // by parameter: buckets are cut anew now and then
  std::atomic<int64_t> values = 0;  // since compression began
  std::atomic<int64_t> sent_values = 0;
};

std::vector<LowRank> PowerSgd::Implementation::Split(const GradientBucket& bucket,
                                                     std::vector<torch::Tensor>& rest) {
  std::vector<LowRank> matrices;
  for (size_t i = 0; i < bucket.gradients.size(); ++i) {
    const torch::Tensor& gradient = bucket.gradients[i];
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
    LowRank& matrix = matrices.emplace_back();
    matrix.parameter = bucket.parameters[i];
    matrix.gradient = gradient.view({rows, columns});
    matrix.memory = &memory[matrix.parameter];
    // A restored matrix may be of other options, and is in CPU memory.
    const auto fits = [&](const torch::Tensor& tensor, int64_t height, int64_t width) {
      return !tensor.defined() || (tensor.size(0) == height && tensor.size(1) == width);
    };
    if (!fits(matrix.memory->q, columns, rank) || !fits(matrix.memory->error, rows, columns)) {
      *matrix.memory = Memory();
    }
    for (torch::Tensor* kept : {&matrix.memory->q, &matrix.memory->error}) {
      if (kept->defined()) *kept = kept->to(gradient.options());
    }
  }
  return matrices;
}

torch::Tensor PowerSgd::Implementation::DrawQ(const LowRank& matrix) const {
  const torch::Tensor& gradient = matrix.gradient;
  const int64_t rank =
      std::min({gradient.size(0), gradient.size(1), options.matrix_approximation_rank});
  // Different for each matrix and step.
  const uint64_t draw =
      options.seed + static_cast<uint64_t>(step) * 1000003 + matrix.parameter * 1009;
  const at::Generator generator = at::detail::createCPUGenerator(draw);
  return at::randn({gradient.size(1), rank}, generator).to(gradient.options());
}

void PowerSgd::Implementation::MakeP(LowRank& matrix) const {
  Memory& kept = *matrix.memory;
  matrix.sent = matrix.gradient.clone();
  if (kept.error.defined()) matrix.sent.add_(kept.error);
  if (!kept.q.defined() || !options.warm_start) kept.q = DrawQ(matrix);
  Orthogonalize(kept.q, options.orthogonalization_epsilon);
  matrix.p = matrix.sent.mm(kept.q);
}

absl::Status PowerSgd::Implementation::Compress(GradientBucket& bucket, Group& group) {
  std::vector<torch::Tensor> rest;
  std::vector<LowRank> matrices = Split(bucket, rest);
  std::vector<torch::Tensor> first = rest;
  for (LowRank& matrix : matrices) {
    MakeP(matrix);
    first.push_back(matrix.p);
  }
  torch::Tensor flat = Pack(first);
  DDPRUN_RETURN_IF_ERROR(group.AllReduceSum(flat));
  // P needs no division by the number of ranks, because its columns are normalized.
  int64_t end = 0;
  for (const torch::Tensor& gradient : rest) end += gradient.numel();
  flat.slice(0, 0, end).div_(group.world_size());
  Unpack(flat, 0, first);
  if (matrices.empty()) return absl::OkStatus();

  std::vector<torch::Tensor> second;
  for (LowRank& matrix : matrices) {
    Orthogonalize(matrix.p, options.orthogonalization_epsilon);
    matrix.memory->q = matrix.sent.t().mm(matrix.p);
    second.push_back(matrix.memory->q);
  }
  flat = Pack(second);
  DDPRUN_RETURN_IF_ERROR(group.AllReduceSum(flat));
  flat.div_(group.world_size());
  Unpack(flat, 0, second);
  for (LowRank& matrix : matrices) {
    matrix.gradient.copy_(matrix.p.mm(matrix.memory->q.t()));
    if (options.error_feedback) matrix.memory->error = matrix.sent.sub_(matrix.gradient);
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

PowerSgd::Tensors PowerSgd::SaveState() const {
  Tensors state = {{"step", at::full({}, implementation_->step, torch::kLong)}};
  for (const auto& [parameter, memory] : implementation_->memory) {
    if (memory.q.defined()) state[absl::StrCat(parameter, ".q")] = memory.q;
    if (memory.error.defined()) state[absl::StrCat(parameter, ".error")] = memory.error;
  }
  return state;
}

absl::Status PowerSgd::RestoreState(const Tensors& state) {
  std::map<size_t, Memory> memory;
  int64_t step = -1;
  for (const auto& [name, tensor] : state) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(name, absl::MaxSplits('.', 1));
    size_t parameter = 0;
    const bool known = parts.second == "q" || parts.second == "error";
    if (name == "step" && tensor.numel() == 1) {
      step = tensor.item<int64_t>();
    } else if (known && tensor.dim() == 2 && absl::SimpleAtoi(parts.first, &parameter)) {
      (parts.second == "q" ? memory[parameter].q : memory[parameter].error) = tensor.clone();
    } else {
      return absl::FailedPreconditionError(
          absl::StrCat("'", name, "' is nothing of a PowerSgd's state"));
    }
  }
  if (step < 0) return absl::FailedPreconditionError("a PowerSgd's state must have its step");
  implementation_->memory = std::move(memory);
  implementation_->step = step;
  return absl::OkStatus();
}

double PowerSgd::sent_share() const {
  const int64_t values = implementation_->values;
  if (values == 0) return 1;
  return static_cast<double>(implementation_->sent_values) / static_cast<double>(values);
}

}  // namespace ddprun
