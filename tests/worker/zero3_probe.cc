// A worker for the tests of ZeRO-3: trains a network whose gradients depend on its parameters, and
// writes what came of it to FILE.RANK as lines "name value".
//
//   zero3_probe equal FILE BACKEND WAY    100 steps with DDP and with ZeRO-3; WAY: plain, …
//   zero3_probe memory FILE BACKEND -     live bytes of its tensors after a step, and the most
//   zero3_probe use FILE BACKEND -        what programs do with parameters outside of training: 0
//                                         for each thing that is right
//   zero3_probe wrong FILE BACKEND HOW    unused, save, gone
#include <ATen/ops/linear.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ddprun/activation_checkpoint.h"
#include "ddprun/autocast.h"
#include "ddprun/clip_grad_norm.h"
#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/grad_scaler.h"
#include "ddprun/parameters.h"
#include "ddprun/weights.h"
#include "ddprun/zero_optimizer.h"
#include "tests/worker/counting_allocator.h"
#include "tests/worker/probe_arguments.h"

namespace {

using ddprun::Context;
using ddprun::DistributedDataParallel;
using ddprun::ZeroOptimizer;
using ddprun::testing::CountingAllocator;
namespace nn = torch::nn;

constexpr int64_t kWords = 32;
constexpr int kSteps = 100;
// A power of two: the product with it is exact, so that an update is rounded once, whether the CPU
// fuses product and sum or not.
constexpr double kRate = 1.0 / 32;

// A norm and a perceptron beside the stream: 12.5 KiB at a width of 24.
struct BlockImpl : nn::Module {
  explicit BlockImpl(int64_t width)
      : norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({width})))),
        in(register_module("in", nn::Linear(width, 64))),
        drop(register_module("drop", nn::Dropout(0.1))),
        out(register_module("out", nn::Linear(64, width))) {}
  torch::Tensor forward(const torch::Tensor& x) { return x + out(drop(torch::gelu(in(norm(x))))); }
  nn::LayerNorm norm;
  nn::Linear in;
  nn::Dropout drop;
  nn::Linear out;
};
TORCH_MODULE(Block);

// A GPT's outline, with the words' vectors at both ends (tied).
struct NetworkImpl : nn::Module {
  explicit NetworkImpl(int64_t width = 24, bool recompute_blocks = false)
      : recompute(recompute_blocks),
        words(register_module("words", nn::Embedding(kWords, width))),
        norm(nn::LayerNormOptions({width})) {
    for (int i = 0; i < 4; ++i) blocks->push_back(Block(width));
    register_module("blocks", blocks);
    register_module("norm", norm);
    register_parameter("head", words->weight);
  }

  // words: [n] int64. Returns logits [n, words].
  torch::Tensor forward(const torch::Tensor& in) {
    torch::Tensor x = words(in);
    for (const auto& module : *blocks) {
      const auto block = std::dynamic_pointer_cast<BlockImpl>(module);
      const auto part = [block](const torch::Tensor& y) { return block->forward(y); };
      x = recompute ? ddprun::CheckpointActivations(part, x) : part(x);
    }
    return at::linear(norm(x), words->weight);
  }

  const bool recompute;
  nn::Embedding words;
  nn::ModuleList blocks;
  nn::LayerNorm norm;
};
TORCH_MODULE(Network);

struct Trainer {
  Context& context;
  std::string way;
  Network network;
  std::unique_ptr<DistributedDataParallel> ddp;
  std::unique_ptr<torch::optim::Optimizer> plain;
  std::unique_ptr<ZeroOptimizer> zero;
  ddprun::GradScaler scaler = ddprun::GradScaler({.init_scale = 1024, .growth_interval = 10});

  bool Is(const std::string& name) const { return way == name; }
  torch::optim::Optimizer& optimizer() { return zero != nullptr ? *zero : *plain; }
};

absl::StatusOr<std::unique_ptr<Trainer>> MakeTrainer(Context& context, const std::string& way,
                                                     bool shares_out) {
  torch::manual_seed(context.rank() == 0 ? 7 : 99);
  std::unique_ptr<Trainer> trainer(
      new Trainer{.context = context, .way = way, .network = Network(24, way == "checkpointed")});
  if (way == "frozen") {
    for (torch::Tensor& parameter : trainer->network->blocks[1]->parameters()) {
      parameter.requires_grad_(false);
    }
  }
  const torch::optim::SGDOptions sgd(kRate);
  if (shares_out) {
    DDPRUN_ASSIGN_OR_RETURN(
        trainer->zero,
        ZeroOptimizer::Create(
            trainer->network.ptr(), context, sgd,
            {.stage = 3, .bucket_cap_mb = 0.0135, .offload_to_cpu = way == "offload"}));
    return trainer;
  }
  DDPRUN_ASSIGN_OR_RETURN(trainer->ddp,
                          DistributedDataParallel::Create(trainer->network.ptr(), context, {}));
  trainer->plain = std::make_unique<ddprun::FusedSGD>(ddprun::Parameters(*trainer->network), sgd);
  return trainer;
}

void Pass(Trainer& trainer) {
  std::optional<ddprun::Autocast> autocast;
  if (trainer.Is("bf16")) autocast.emplace(torch::kCPU, ddprun::MixedPrecision::kBFloat16);
  const torch::Tensor in = torch::randint(kWords, {20}, torch::kLong);
  const torch::Tensor next = torch::randint(kWords, {20}, torch::kLong);
  const auto forward = [&] { return trainer.network(in); };
  const torch::Tensor logits = trainer.ddp != nullptr ? trainer.ddp->Forward(forward) : forward();
  torch::Tensor loss = nn::functional::cross_entropy(logits.to(torch::kFloat), next);
  autocast.reset();
  if (trainer.Is("scaler")) loss = trainer.scaler.Scale(loss);
  loss.backward();
}

void Passes(Trainer& trainer) {
  if (trainer.Is("no_sync") && trainer.zero != nullptr) {
    const ZeroOptimizer::NoSync guard(*trainer.zero);
    Pass(trainer);
  } else if (trainer.Is("no_sync")) {
    const DistributedDataParallel::NoSync guard(*trainer.ddp);
    Pass(trainer);
  }
  Pass(trainer);
}

absl::Status TrainStep(Trainer& trainer) {
  trainer.zero != nullptr ? trainer.zero->ZeroGrad() : trainer.ddp->ZeroGrad();
  Passes(trainer);
  if (trainer.Is("scaler")) {
    DDPRUN_RETURN_IF_ERROR(trainer.scaler.Step(trainer.optimizer()).status());
    return trainer.scaler.Update();
  }
  if (trainer.zero != nullptr) return trainer.zero->Step();
  trainer.plain->step();
  return absl::OkStatus();
}

torch::Tensor Flat(const nn::Module& module) {
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& parameter : ddprun::Parameters(module)) {
    flat.push_back(parameter.detach().reshape({-1}));
  }
  return torch::cat(flat);
}

absl::StatusOr<std::unique_ptr<Trainer>> Train(Context& context, const std::string& way,
                                               bool shares_out, int steps) {
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<Trainer> trainer, MakeTrainer(context, way, shares_out));
  torch::manual_seed(1000 + context.rank());
  for (int step = 0; step < steps; ++step) DDPRUN_RETURN_IF_ERROR(TrainStep(*trainer));
  return trainer;
}

absl::Status CompareWithDdp(Context& context, const std::string& way, std::ofstream& out) {
  DDPRUN_ASSIGN_OR_RETURN(const auto plain, Train(context, way, false, kSteps));
  DDPRUN_ASSIGN_OR_RETURN(const auto shorter, Train(context, way, false, kSteps - 1));
  DDPRUN_ASSIGN_OR_RETURN(const auto shared, Train(context, way, true, kSteps));
  const ddprun::ZeroStatistics statistics = shared->zero->Statistics();
  const ddprun::ZeroMemory memory = shared->zero->Memory();
  const auto from_plain = [&](const Trainer& other) {
    const auto most = (Flat(*plain->network) - Flat(*other.network)).abs().max().item<double>();
    return std::isfinite(most) ? most : std::numeric_limits<double>::max();
  };
  out << "difference " << from_plain(*shared) << "\none_step " << from_plain(*shorter)
      << "\nbuckets " << statistics.bucket_bytes.size() << "\ngathered "
      << statistics.buckets_gathered << "\nprefetched " << statistics.buckets_prefetched
      << "\nlargest_bucket "
      << *std::max_element(statistics.bucket_bytes.begin(), statistics.bucket_bytes.end())
      << "\nmost_gathered " << memory.gathered << "\n";
  return absl::OkStatus();
}

// A wide network: 26 MiB of parameters in blocks of 6.
absl::Status MeasureMemory(Context& context, std::ofstream& out) {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
  Network network(12288);
  const int64_t parameters = CountingAllocator::live();
  DDPRUN_ASSIGN_OR_RETURN(const auto zero, ZeroOptimizer::Create(network.ptr(), context,
                                                                 torch::optim::AdamWOptions(1e-3),
                                                                 {.stage = 3, .bucket_cap_mb = 7}));
  for (int step = 0; step < 3; ++step) {
    if (step == 2) CountingAllocator::ForgetMost();
    const torch::Tensor in = torch::randint(kWords, {4}, torch::kLong);
    nn::functional::cross_entropy(network(in), in).backward();
    DDPRUN_RETURN_IF_ERROR(zero->Step());
  }
  const ddprun::ZeroMemory memory = zero->Memory();
  const ddprun::ZeroStatistics statistics = zero->Statistics();
  DDPRUN_ASSIGN_OR_RETURN(const int64_t live, CountingAllocator::LiveAtRest(context));
  out << "parameters " << parameters << "\nlive " << live << "\nmost " << CountingAllocator::most()
      << "\nanswered " << memory.parameters + memory.gradients + memory.optimizer_state
      << "\ngathered " << memory.gathered << "\nbuckets " << memory.buckets << "\nlargest_bucket "
      << *std::max_element(statistics.bucket_bytes.begin(), statistics.bucket_bytes.end()) << "\n";
  return context.Barrier();
}

void Note(const std::string& what, bool right, std::ofstream& out) {
  out << "failed_" << what << " " << (right ? 0 : 1) << "\n";
}

// A rank alone has all parameters as they were before.
absl::Status UseWhole(Context& context, Trainer& trainer, const torch::Tensor& expected,
                      const std::string& path, std::ofstream& out) {
  const ZeroOptimizer::WholeParameters whole(*trainer.zero);
  if (context.rank() == 1) {
    Note("whole", Flat(*trainer.network).equal(expected), out);
    DDPRUN_RETURN_IF_ERROR(ddprun::SaveWeights(*trainer.network, path));
    Network other;
    DDPRUN_RETURN_IF_ERROR(ddprun::LoadWeights(*other, path).status());
    Note("saved", Flat(*other).equal(expected), out);
  }
  DDPRUN_RETURN_IF_ERROR(TrainStep(trainer));
  Note("stepped", !Flat(*trainer.network).equal(expected), out);
  return absl::OkStatus();
}

absl::Status UseElsewhere(Context& context, const std::string& path, std::ofstream& out) {
  DDPRUN_ASSIGN_OR_RETURN(const auto trainer, Train(context, "plain", true, 3));
  const torch::Tensor trained = Flat(*trainer->network).clone();
  // Changed by operators, before and after the shares are gathered again.
  {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : trainer->network->parameters()) parameter.mul_(2);
    for (torch::Tensor& parameter : ddprun::Parameters(*trainer->network)) parameter.add_(1);
  }
  // The tied one was doubled under each of its names.
  const int64_t tied = trainer->network->words->weight.numel();
  torch::Tensor expected = trained * 2;
  expected.narrow(0, 0, tied).mul_(2);
  expected.add_(1);
  Note("changed", Flat(*trainer->network).equal(expected), out);
  trainer->network->eval();
  const torch::Tensor in = torch::arange(kWords);
  const torch::Tensor logits = trainer->network(in).detach();
  {
    const torch::InferenceMode inference;
    Note("inferred", trainer->network(in).equal(logits), out);
  }
  trainer->network->train();
  DDPRUN_RETURN_IF_ERROR(UseWhole(context, *trainer, expected, path, out));
  // Only one rank has lost its loss; it reports that instead of waiting for the other.
  if (context.rank() == 1) {
    const torch::Tensor loss = torch::full({1}, std::numeric_limits<double>::quiet_NaN());
    const absl::Status status = ddprun::CheckLoss(loss, *trainer->network);
    Note("said", absl::StrContains(status.message(), "shared out were not looked at"), out);
  }
  return context.Barrier();
}

absl::Status Wrong(Context& context, const std::string& how, const std::string& path) {
  if (how == "unused") {
    Network network;
    return ZeroOptimizer::Create(network.ptr(), context, torch::optim::SGDOptions(kRate),
                                 {.stage = 3, .find_unused_parameters = true})
        .status();
  }
  DDPRUN_ASSIGN_OR_RETURN(const auto trainer, Train(context, "plain", true, 1));
  if (how == "save") return ddprun::SaveWeights(*trainer->network, path);
  trainer->zero.reset();
  trainer->network(torch::arange(kWords));
  return absl::OkStatus();
}

absl::Status Main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 4) {
    return absl::InvalidArgumentError("see the head of zero3_probe.cc for its arguments");
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context,
                          Context::Create({.backend = arguments[2]}));
  std::ofstream out(absl::StrCat(arguments[1], ".", context->rank()));
  const std::string weights = arguments[1] + ".safetensors";
  if (arguments[0] == "equal") return CompareWithDdp(*context, arguments[3], out);
  if (arguments[0] == "memory") return MeasureMemory(*context, out);
  if (arguments[0] == "use") return UseElsewhere(*context, weights, out);
  return Wrong(*context, arguments[3], weights);
}

}  // namespace

int main(int argc, char** argv) { return ddprun::testing::RunProbe(argc, argv, Main); }
