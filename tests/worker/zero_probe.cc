// A worker for the tests of ZeroOptimizer: trains one network in several ways and writes what came
// of it to FILE.RANK as lines "name value".
//
//   zero_probe train FILE BACKEND WAYS    30 steps each way, "all" or "few"; differences from DDP
//   zero_probe memory FILE BACKEND WAY    live bytes of its tensors; WAY: ddp, 1, 2, 1_offload, …
//   zero_probe overlap FILE BACKEND -     buckets that leave during the backward pass
//   zero_probe wrong FILE BACKEND HOW     unused, second, nan, clip, options, overflow
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ddprun/clip_grad_norm.h"
#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/grad_scaler.h"
#include "ddprun/learning_rate.h"
#include "ddprun/zero_optimizer.h"
#include "tests/worker/counting_allocator.h"
#include "tests/worker/probe_arguments.h"

namespace {

using ddprun::Context;
using ddprun::DistributedDataParallel;
using ddprun::ZeroOptimizer;
using ddprun::ZeroOptions;
using ddprun::testing::CountingAllocator;
namespace nn = torch::nn;

constexpr int64_t kBatch = 12;
constexpr double kRate = 1e-3;
constexpr double kSgdRate = 1.0 / 4096;
constexpr double kMaxNorm = 50;  // a tenth of what the norm is, about

// Whole numbers from -1 to 1.
torch::Tensor Signs(at::IntArrayRef sizes) {
  return torch::randint(-1, 2, sizes).to(torch::kFloat);
}

// Each layer has inputs of its own, and the loss is the sum of all outputs, each times a factor. So
// no gradient depends on a parameter, and what one step rounds the next one doesn't blow up. All
// are whole numbers, small enough that no sum of them is rounded, in whatever order a CPU or a
// backend adds; with factors that the number of ranks divides, neither is an average over ranks.
struct NetworkImpl : nn::Module {
  NetworkImpl() {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : parameters()) parameter.mul_(4096).round_().div_(4096);
  }

  torch::Tensor forward(double factor, bool use_extra) {
    const auto part = [&](const torch::Tensor& y) { return (y * Signs(y.sizes()) * factor).sum(); };
    torch::Tensor loss = part(a(Signs({kBatch, 40})));
    loss = loss + part(gain * Signs({kBatch, 150}));
    if (use_extra) loss = loss + part(extra(Signs({kBatch, 150})));
    return loss + part(b(Signs({kBatch, 150}))) + part(c(Signs({kBatch, 90})));
  }

  nn::Linear a = register_module("a", nn::Linear(40, 150));
  torch::Tensor gain = register_parameter("gain", torch::rand({150}) / 8);
  // Tied: a second name, under which LibTorch lists it again.
  torch::Tensor tied = register_parameter("tied", gain);
  nn::Linear extra = register_module("extra", nn::Linear(150, 150));
  nn::Linear b = register_module("b", nn::Linear(150, 90));
  nn::Linear c = register_module("c", nn::Linear(90, 10));
};
TORCH_MODULE(Network);

// What a ZeroOptimizer with a mistake would do.
enum class Mistake {
  kNone,
  kSum,      // doesn't divide by the number of ranks
  kOwnNorm,  // clips by the norm of the own share
  kStale,    // one rank's share of one parameter misses the last step
};

// A way to train: what each step does around forward and backward pass.
struct Kind {
  std::string name;
  int stage = 0;  // 0 = DDP with FusedAdamW
  int steps = 30;
  bool offload = false;
  bool clip = false;
  bool scaler = false;
  int accumulate = 1;
  bool no_sync = false;
  bool groups = false;
  bool sgd = false;
  bool exact = false;  // SGD without momentum and with rates that are powers of two
  bool unused = false;
  Mistake mistake = Mistake::kNone;
  bool alone = false;  // negative control: nothing is averaged
};

struct Trainer {
  Context& context;
  Kind kind;
  Network network;
  std::unique_ptr<DistributedDataParallel> ddp;
  std::unique_ptr<torch::optim::Optimizer> plain;
  std::unique_ptr<ZeroOptimizer> zero;
  ddprun::GradScaler scaler = ddprun::GradScaler({.init_scale = 1024, .growth_interval = 10});

  torch::optim::Optimizer& optimizer() { return zero != nullptr ? *zero : *plain; }
};

// With so large an epsilon a step does depend on how large the gradient is.
torch::optim::AdamWOptions Adam(double decay = 0.01) {
  return torch::optim::AdamWOptions(kRate).weight_decay(decay).eps(0.5);
}
torch::optim::SGDOptions Sgd(const Kind& kind) {
  return torch::optim::SGDOptions(kSgdRate).momentum(kind.exact ? 0 : 0.9);
}

// The rate falls, so the values that the program sets must reach the shares.
double RateOf(const Kind& kind, int step) {
  if (kind.exact) return kSgdRate / (1 << step / 10);
  return (kind.sgd ? kSgdRate : kRate) / (1 + 0.01 * step);
}

// Vectors in a group without decay, as is usual; its order isn't the module's.
std::vector<torch::optim::OptimizerParamGroup> GroupsOf(const Kind& kind, Network& network) {
  if (!kind.groups) return {{network->parameters()}};
  std::vector<torch::Tensor> matrices;
  std::vector<torch::Tensor> vectors;
  for (const torch::Tensor& parameter : network->parameters()) {
    (parameter.dim() > 1 ? matrices : vectors).push_back(parameter);
  }
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(vectors, std::make_unique<torch::optim::AdamWOptions>(Adam(0)));
  groups.emplace_back(matrices, std::make_unique<torch::optim::AdamWOptions>(Adam(0.1)));
  return groups;
}

absl::Status MakeOptimizer(Trainer& trainer) {
  const Kind& kind = trainer.kind;
  std::vector<torch::optim::OptimizerParamGroup> groups = GroupsOf(kind, trainer.network);
  const torch::optim::AdamWOptions adam = Adam();
  if (kind.stage == 0 && kind.sgd) {
    trainer.plain = std::make_unique<ddprun::FusedSGD>(std::move(groups), Sgd(kind));
  } else if (kind.stage == 0) {
    trainer.plain = std::make_unique<ddprun::FusedAdamW>(std::move(groups), adam);
  } else {
    ZeroOptions options;
    options.stage = kind.stage;
    options.bucket_cap_mb = 0.06;
    options.offload_to_cpu = kind.offload;
    options.find_unused_parameters = kind.unused;
    if (kind.groups) options.groups.swap(groups);
    absl::StatusOr<std::unique_ptr<ZeroOptimizer>> made =
        kind.sgd ? ZeroOptimizer::Create(trainer.network.ptr(), trainer.context, Sgd(kind), options)
                 : ZeroOptimizer::Create(trainer.network.ptr(), trainer.context, adam, options);
    DDPRUN_ASSIGN_OR_RETURN(trainer.zero, std::move(made));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Trainer>> MakeTrainer(Context& context, const Kind& kind) {
  // Different on every rank: the broadcast at the start must fix it.
  torch::manual_seed(kind.alone || context.rank() == 0 ? 7 : 99);
  std::unique_ptr<Trainer> trainer(new Trainer{.context = context, .kind = kind});
  if (kind.stage < 2 && !kind.alone) {
    DDPRUN_ASSIGN_OR_RETURN(
        trainer->ddp, DistributedDataParallel::Create(trainer->network.ptr(), context,
                                                      {.find_unused_parameters = kind.unused}));
  }
  DDPRUN_RETURN_IF_ERROR(MakeOptimizer(*trainer));
  return trainer;
}

void Pass(Trainer& trainer, bool use_extra) {
  const double ranks = trainer.context.world_size();
  // Each pass of a step may be divided by the number of ranks once more.
  double factor = std::pow(ranks, trainer.kind.accumulate);
  if (trainer.kind.mistake == Mistake::kSum) factor *= ranks;
  const auto forward = [&] { return trainer.network(factor, use_extra); };
  torch::Tensor loss = trainer.ddp != nullptr ? trainer.ddp->Forward(forward) : forward();
  loss = loss / trainer.kind.accumulate;
  if (trainer.kind.scaler) loss = trainer.scaler.Scale(loss);
  loss.backward();
}

void Passes(Trainer& trainer, bool use_extra) {
  const Kind& kind = trainer.kind;
  for (int i = 1; i < kind.accumulate; ++i) {
    if (!kind.no_sync) {
      Pass(trainer, use_extra);
    } else if (kind.stage >= 2) {
      const ZeroOptimizer::NoSync guard(*trainer.zero);
      Pass(trainer, use_extra);
    } else if (trainer.ddp != nullptr) {
      const DistributedDataParallel::NoSync guard(*trainer.ddp);
      Pass(trainer, use_extra);
    }
  }
  Pass(trainer, use_extra);
}

void Clear(Trainer& trainer) {
  if (trainer.zero != nullptr) {
    trainer.zero->ZeroGrad();
  } else if (trainer.ddp != nullptr) {
    trainer.ddp->ZeroGrad();
  } else {
    trainer.plain->zero_grad();
  }
}

absl::Status ClipByOwnNorm(ZeroOptimizer& zero) {
  DDPRUN_RETURN_IF_ERROR(zero.FinishBackward());
  const torch::NoGradGuard no_grad;
  double squares = 0;
  const std::vector<torch::Tensor>& shares = zero.param_groups()[0].params();
  for (const torch::Tensor& share : shares) squares += share.grad().square().sum().item<double>();
  for (const torch::Tensor& share : shares) share.grad().mul_(kMaxNorm / std::sqrt(squares));
  return absl::OkStatus();
}

absl::Status Clip(Trainer& trainer) {
  if (trainer.kind.mistake == Mistake::kOwnNorm) return ClipByOwnNorm(*trainer.zero);
  if (trainer.kind.scaler) {
    return trainer.scaler.ClipGradNorm(trainer.optimizer(), *trainer.network, kMaxNorm).status();
  }
  if (trainer.zero != nullptr) return trainer.zero->ClipGradNorm(kMaxNorm).status();
  return ddprun::ClipGradNorm(*trainer.network, kMaxNorm).status();
}

absl::Status TrainStep(Trainer& trainer, int step) {
  const Kind& kind = trainer.kind;
  Clear(trainer);
  if (!kind.groups) ddprun::SetLearningRate(trainer.optimizer(), RateOf(kind, step));
  // No rank uses it in every third step; then each in turn.
  const int turn = step % 3;
  Passes(trainer, !kind.unused || turn == 1 + static_cast<int>(trainer.context.rank() % 2));
  if (kind.clip) DDPRUN_RETURN_IF_ERROR(Clip(trainer));
  if (kind.scaler) {
    DDPRUN_RETURN_IF_ERROR(trainer.scaler.Step(trainer.optimizer()).status());
    DDPRUN_RETURN_IF_ERROR(trainer.scaler.Update());
  } else if (trainer.zero != nullptr) {
    DDPRUN_RETURN_IF_ERROR(trainer.zero->Step());
  } else {
    trainer.plain->step();
  }
  return absl::OkStatus();
}

// How training ends, and the largest parameter that there ever was.
struct Result {
  torch::Tensor parameters;
  double largest = 0;
};

torch::Tensor Flat(Network& network) {
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& parameter : network->parameters()) {
    flat.push_back(parameter.detach().reshape({-1}));
  }
  return torch::cat(flat);
}

absl::StatusOr<Result> Train(Context& context, const Kind& kind) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer, MakeTrainer(context, kind));
  torch::manual_seed(1000 + context.rank());
  Result result;
  torch::Tensor stale;
  for (int step = 0; step < kind.steps; ++step) {
    stale = Flat(trainer->network);
    result.largest = std::max(result.largest, stale.abs().max().item<double>());
    DDPRUN_RETURN_IF_ERROR(TrainStep(*trainer, step));
  }
  result.parameters = Flat(trainer->network);
  // The first half of the first parameter.
  const int64_t share = trainer->network->parameters()[0].numel() / 2;
  if (kind.mistake == Mistake::kStale) {
    result.parameters.narrow(0, 0, share).copy_(stale.narrow(0, 0, share));
  }
  return result;
}

double Difference(const Result& one, const Result& other) {
  return (one.parameters - other.parameters).abs().max().item<double>();
}

// Pairs of a kind without ZeRO and the same with it.
std::vector<Kind> KindsOf(const Kind& plain) {
  std::vector<Kind> kinds;
  for (const int stage : {1, 2, 3}) {
    if (stage == 3 && plain.unused) continue;
    for (const bool offload : {false, true}) {
      Kind kind = plain;
      kind.stage = stage;
      kind.offload = offload;
      kind.name = absl::StrCat("zero", stage, offload ? "_offload" : "", plain.name);
      if (!offload || plain.name.empty() || plain.clip || plain.exact) kinds.push_back(kind);
    }
  }
  return kinds;
}

// What the measure must see; all but "alone" with a ZeroOptimizer of stage 2.
std::vector<Kind> MistakesOf(const Kind& plain) {
  std::vector<Kind> kinds = {{.name = "wrong_stale", .mistake = Mistake::kStale},
                             {.name = "wrong_sum", .mistake = Mistake::kSum}};
  if (plain.clip) kinds = {{.name = "wrong_norm_clip", .mistake = Mistake::kOwnNorm}};
  for (Kind& kind : kinds) {
    kind.stage = 2;
    kind.clip = plain.clip;
  }
  if (plain.name.empty()) kinds.push_back({.name = "wrong_alone", .alone = true});
  return kinds;
}

absl::Status Compare(Context& context, const Kind& plain, std::ofstream& out) {
  DDPRUN_ASSIGN_OR_RETURN(const Result expected, Train(context, plain));
  out << "largest" << plain.name << " " << expected.largest << "\n";
  for (const Kind& kind : KindsOf(plain)) {
    DDPRUN_ASSIGN_OR_RETURN(const Result result, Train(context, kind));
    out << kind.name << " " << Difference(result, expected) << "\n";
    torch::Tensor others = result.parameters.clone();
    DDPRUN_RETURN_IF_ERROR(context.Broadcast(others, 0));
    out << "same_on_ranks" << kind.name << " " << !others.equal(result.parameters) << "\n";
  }
  if (!plain.name.empty() && plain.name != "_clip") return absl::OkStatus();
  for (const Kind& kind : MistakesOf(plain)) {
    DDPRUN_ASSIGN_OR_RETURN(const Result result, Train(context, kind));
    out << kind.name << " " << Difference(result, expected) << "\n";
  }
  return absl::OkStatus();
}

absl::Status TrainAll(Context& context, bool all, std::ofstream& out) {
  std::vector<Kind> plains = {
      {.name = ""},
      {.name = "_clip", .clip = true},
      {.name = "_exact", .sgd = true, .exact = true},
      {.name = "_scaler", .clip = true, .scaler = true},
      {.name = "_accumulate", .accumulate = 2},
      {.name = "_no_sync", .accumulate = 2, .no_sync = true},
      {.name = "_groups", .groups = true},
      {.name = "_sgd", .sgd = true},
      {.name = "_unused", .unused = true},
  };
  if (!all) plains.resize(3);
  for (const Kind& plain : plains) DDPRUN_RETURN_IF_ERROR(Compare(context, plain, out));
  return absl::OkStatus();
}

// Three steps of a model of about a million parameters; then what lives, and what is answered.
absl::Status MeasureMemory(Context& context, const std::string& kind, std::ofstream& out) {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
  nn::Sequential model(nn::Linear(256, 1024), nn::ReLU(), nn::Linear(1024, 768), nn::ReLU(),
                       nn::Linear(768, 16));
  const int64_t parameters = CountingAllocator::live();
  std::unique_ptr<DistributedDataParallel> ddp;
  std::unique_ptr<torch::optim::Optimizer> plain;
  std::unique_ptr<ZeroOptimizer> zero;
  if (kind[0] < '2' || kind == "ddp") {
    DDPRUN_ASSIGN_OR_RETURN(ddp, DistributedDataParallel::Create(
                                     model.ptr(), context, {.gradient_as_bucket_view = true}));
  }
  if (kind == "ddp") {
    plain = std::make_unique<ddprun::FusedAdamW>(model->parameters(), Adam());
  } else {
    DDPRUN_ASSIGN_OR_RETURN(
        zero, ZeroOptimizer::Create(model.ptr(), context, Adam(),
                                    {.stage = kind[0] - '0',
                                     .bucket_cap_mb = 0.5,
                                     .offload_to_cpu = absl::EndsWith(kind, "offload")}));
  }
  for (int step = 0; step < 3; ++step) {
    if (step == 2) CountingAllocator::ForgetMost();
    const torch::Tensor x = torch::randn({4, 256});
    const auto forward = [&] { return model->forward(x); };
    torch::Tensor output = ddp != nullptr ? ddp->Forward(forward) : forward();
    output.square().mean().backward();
    zero != nullptr ? zero->step() : plain->step();
  }
  DDPRUN_ASSIGN_OR_RETURN(const int64_t live, CountingAllocator::LiveAtRest(context));
  out << "parameters " << parameters << "\nlive " << live - parameters << "\nmost "
      << CountingAllocator::most() - parameters << "\n";
  if (zero != nullptr) {
    const ddprun::ZeroMemory memory = zero->Memory();
    out << "own_parameters " << memory.parameters << "\nall_parameters " << memory.all_parameters
        << "\ngradients " << memory.gradients << "\nstate " << memory.optimizer_state
        << "\noffloaded " << memory.offloaded << "\nbuckets " << memory.buckets
        << "\nall_gradients " << memory.all_gradients << "\nall_state "
        << memory.all_optimizer_state << "\n";
  }
  return context.Barrier();
}

// How many buckets had left when the backward pass came back to the network's input.
struct Witness : torch::autograd::Function<Witness> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               int64_t seen) {
    context->saved_data["seen"] = seen;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    (*reinterpret_cast<std::function<void()>*>(context->saved_data["seen"].toInt()))();
    return {gradients[0], torch::Tensor()};
  }
};

absl::Status WatchOverlap(Context& context, std::ofstream& out) {
  nn::Linear first(64, 64);
  nn::Sequential rest(nn::Linear(64, 256), nn::ReLU(), nn::Linear(256, 64));
  nn::ModuleList model(first, rest);
  DDPRUN_ASSIGN_OR_RETURN(
      const std::unique_ptr<ZeroOptimizer> zero,
      ZeroOptimizer::Create(model.ptr(), context, Adam(), {.stage = 2, .bucket_cap_mb = 0.02}));
  int64_t sent = -1;
  std::function<void()> look = [&] { sent = zero->Statistics().buckets_sent; };
  const auto pass = [&] {
    const torch::Tensor middle =
        Witness::apply(first(torch::randn({4, 64})), reinterpret_cast<int64_t>(&look));
    rest->forward(middle).square().mean().backward();
  };
  {
    const ZeroOptimizer::NoSync guard(*zero);
    pass();
    out << "sent_in_no_sync " << sent << "\n";
  }
  pass();
  const ddprun::ZeroStatistics statistics = zero->Statistics();
  out << "sent_before_the_end " << sent << "\nsent " << statistics.buckets_sent << "\nbuckets "
      << statistics.bucket_bytes.size() << "\n";
  return zero->Step();
}

// One rank's share has overflowed: none steps, and the scale falls on all.
absl::Status LeaveOut(Trainer& trainer) {
  DDPRUN_RETURN_IF_ERROR(
      trainer.scaler.ClipGradNorm(*trainer.zero, *trainer.network, 1.0).status());
  DDPRUN_ASSIGN_OR_RETURN(const bool stepped, trainer.scaler.Step(*trainer.zero));
  DDPRUN_RETURN_IF_ERROR(trainer.scaler.Update());
  if (!stepped && trainer.scaler.scale() == 512) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("scale ", trainer.scaler.scale()));
}

// Makes each mistake on the second rank, or on all.
absl::Status Wrong(Context& context, const std::string& how) {
  const bool odd = context.rank() == 1;
  if (how == "options") {
    Network network;
    return ZeroOptimizer::Create(network.ptr(), context, Adam(), {.stage = odd ? 1 : 2}).status();
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                          MakeTrainer(context, {.name = how, .stage = 2}));
  if (how == "unused" || how == "second") {
    Pass(*trainer, false);
    if (how == "second") Pass(*trainer, true);
    return trainer->zero->Step();
  }
  Pass(*trainer, true);
  DDPRUN_RETURN_IF_ERROR(trainer->zero->FinishBackward());
  if (how == "clip") return ddprun::ClipGradNorm(*trainer->network, 1.0).status();
  if (odd) {
    torch::Tensor share = trainer->zero->param_groups()[0].params().at(1).grad();
    share[0] = std::numeric_limits<float>::quiet_NaN();
  }
  if (how == "overflow") return LeaveOut(*trainer);
  return trainer->zero->ClipGradNorm(1.0).status();
}

absl::Status Main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() != 4) {
    return absl::InvalidArgumentError("see the head of zero_probe.cc for its arguments");
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context,
                          Context::Create({.backend = arguments[2]}));
  std::ofstream out(absl::StrCat(arguments[1], ".", context->rank()));
  if (arguments[0] == "train") return TrainAll(*context, arguments[3] == "all", out);
  if (arguments[0] == "overlap") return WatchOverlap(*context, out);
  if (arguments[0] == "memory") return MeasureMemory(*context, arguments[3], out);
  return Wrong(*context, arguments[3]);
}

}  // namespace

int main(int argc, char** argv) { return ddprun::testing::RunProbe(argc, argv, Main); }
