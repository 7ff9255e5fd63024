#include "worker/torch/session/session_facts.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ddprun/option_table.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/store/model_check.h"

namespace ddprun::worker {
namespace {

// Options that may differ between ranks: files, threads, output.
constexpr std::array kOfOneRank = {"data",        "num_workers",    "threads",
                                   "output_dir",  "checkpoint_dir", "keep_checkpoints",
                                   "resume_from", "weights_prefix", "weights_strict",
                                   "journal",     "log_level",      "step_delay_ms",
                                   "backend",     "config"};

std::string TensorFact(const torch::Tensor& tensor) {
  if (!tensor.defined()) return "nothing";
  const torch::Tensor plain = tensor.detach().cpu().contiguous();
  const absl::string_view bytes(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  return absl::StrCat(torch::toString(plain.scalar_type()), " [",
                      absl::StrJoin(plain.sizes(), ", "), "] ",
                      absl::StrFormat("%016x", HashOf(bytes)));
}

// Describes a sample; "" = it can't be loaded.
std::string SampleFact(const Dataset& data, int64_t sample) {
  const absl::StatusOr<std::string> fact = CatchExceptions([&]() -> absl::StatusOr<std::string> {
    // torch::manual_seed() would reach the generators of GPUs, too.
    at::Generator own = at::detail::getDefaultCPUGenerator();
    {
      const std::lock_guard lock(own.mutex());
      own.set_current_seed(1);
    }
    const Batch batch = data.load({sample}, at::make_generator<at::CPUGeneratorImpl>(1));
    return absl::StrCat("sample ", sample, ": inputs ", TensorFact(batch.inputs), ", targets ",
                        TensorFact(batch.targets));
  });
  return fact.value_or("");
}

std::string KindFact(const OptimizerKind& kind) {
  return std::visit(
      [](const auto& one) {
        if constexpr (std::is_same_v<std::decay_t<decltype(one)>, AdamW>) {
          return absl::StrCat("AdamW with betas ", one.betas.first, " and ", one.betas.second,
                              ", eps ", one.eps);
        } else if constexpr (std::is_same_v<std::decay_t<decltype(one)>, AnyOptimizer>) {
          return one.name;
        } else {
          return absl::StrCat("SGD with momentum ", one.momentum, one.nesterov ? ", Nesterov" : "");
        }
      },
      kind);
}

}  // namespace

std::vector<std::string> OptionFacts(const TrainingOptions& options) {
  TrainingOptions shown = options;
  OptionTable table("");
  AddTrainingOptions(&shown, {.sync_batch_norm = true}, &table);
  std::vector<std::string> facts;
  for (const auto& [name, value] : table.Values()) {
    if (std::find(kOfOneRank.begin(), kOfOneRank.end(), name) != kOfOneRank.end()) continue;
    facts.push_back(absl::StrCat("--", name, " ", value.empty() ? "unset" : value));
  }
  facts.emplace_back(options.CheckpointDirectory().empty() ? "no checkpoints" : "checkpoints");
  return facts;
}

std::vector<std::string> SampleFacts(const Dataset& data) {
  std::vector<std::string> facts;
  const at::NoGradGuard no_grad;
  const torch::Tensor generators = GetGenerators(torch::kCPU);
  for (const int64_t sample : {int64_t{0}, data.size - 1}) {
    if (sample < 0 || sample >= data.size) continue;
    const std::string fact = SampleFact(data, sample);
    const bool is_known = !fact.empty() && fact == SampleFact(data, sample);
    facts.push_back(is_known ? fact : absl::StrCat("sample ", sample));
  }
  SetGenerators(torch::kCPU, generators).IgnoreError();  // the process' own state
  return facts;
}

std::vector<std::string> OptimizerFacts(const OptimizerKind& kind,
                                        const std::vector<ParameterGroup>& groups) {
  std::vector<std::string> facts = {KindFact(kind)};
  for (const ParameterGroup& group : groups) {
    facts.push_back(absl::StrCat(
        "a group of ", group.parameters.size(), " parameters, learning_rate_factor ",
        group.learning_rate_factor, ", weight_decay ",
        group.weight_decay.has_value() ? absl::StrCat(*group.weight_decay) : "the training's"));
  }
  return facts;
}

std::vector<std::string> ParameterNames(const torch::nn::Module& module,
                                        const torch::optim::Optimizer& optimizer) {
  std::map<const c10::TensorImpl*, std::string> names;
  for (const auto& [name, tensor] : ModuleTensors(module, /*prefix=*/"")) {
    names[tensor.unsafeGetTensorImpl()] = name;
  }
  std::vector<std::string> in_order;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      in_order.push_back(names[parameter.unsafeGetTensorImpl()]);
    }
  }
  return in_order;
}

uint64_t Fingerprint(const std::vector<std::string>& facts) {
  return HashOf(absl::StrJoin(facts, "\n"));
}

}  // namespace ddprun::worker
