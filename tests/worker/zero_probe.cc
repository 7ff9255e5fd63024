// A worker for the tests of ZeroOptimizer: trains one network in several ways and writes what came
// of it to FILE.RANK as lines "name value".
//
//   zero_probe train FILE BACKEND WAYS    100 steps each way, "all" or "few"; differences from DDP
//
//   zero_probe memory FILE BACKEND WAY    live bytes of its tensors; WAY: ddp, 1, 2, 1_offload, …
//
//   zero_probe overlap FILE BACKEND -     buckets that leave during the backward pass
//
//   zero_probe wrong FILE BACKEND HOW     unused, second, nan, clip, options: ends with that error
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <atomic>
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
#include "ddprun/run_worker.h"
#include "ddprun/zero_optimizer.h"

namespace {

using ddprun::Context;
using ddprun::DistributedDataParallel;
using ddprun::ZeroOptimizer;
using ddprun::ZeroOptions;
namespace nn = torch::nn;

constexpr int64_t kBatch = 12;
constexpr double kRate = 1e-3;

// No layer's bias is cancelled by what follows: such gradients are noise, which Adam blows up.
struct NetworkImpl : nn::Module {
  NetworkImpl() = default;

  torch::Tensor forward(torch::Tensor x, bool use_extra = true) {
    x = norm(torch::gelu(a(x)));
    if (use_extra) x = x + 0.1 * torch::gelu(extra(x));
    return c(torch::gelu(b(x)));
  }

  nn::Linear a = register_module("a", nn::Linear(40, 150));
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({150})));
  nn::Linear extra = register_module("extra", nn::Linear(150, 150));
  nn::Linear b = register_module("b", nn::Linear(150, 90));
  nn::Linear c = register_module("c", nn::Linear(90, 10));
};
TORCH_MODULE(Network);

// A way to train: what each step does around forward and backward pass.
struct Way {
  std::string name;
  int stage = 0;  // 0 = DDP with FusedAdamW
  int steps = 100;
  bool offload = false;
  bool clip = false;
  bool scaler = false;
  int accumulate = 1;
  bool no_sync = false;
  bool groups = false;
  bool sgd = false;
  bool unused = false;
  bool alone = false;  // the twin: nothing is averaged
};

struct Trainer {
  Context& context;
  Way way;
  Network network;
  std::unique_ptr<DistributedDataParallel> ddp;
  std::unique_ptr<torch::optim::Optimizer> plain;
  std::unique_ptr<ZeroOptimizer> zero;
  ddprun::GradScaler scaler = ddprun::GradScaler({.init_scale = 1024, .growth_interval = 10});

  torch::optim::Optimizer& optimizer() { return zero != nullptr ? *zero : *plain; }
};

torch::optim::AdamWOptions Adam(double decay = 0.01, double epsilon = 1e-8) {
  return torch::optim::AdamWOptions(kRate).weight_decay(decay).eps(epsilon);
}
// Of gradients that are no larger than this, Adam makes steps of the rounding; a layer that is
// rarely used has such.
double EpsilonOf(const Way& way) { return way.unused ? 1e-6 : 1e-8; }
torch::optim::SGDOptions Sgd() { return torch::optim::SGDOptions(0.05).momentum(0.9); }

// Vectors in a group without decay, as is usual; its order isn't the module's.
std::vector<torch::optim::OptimizerParamGroup> GroupsOf(const Way& way, Network& network) {
  if (!way.groups) return {{network->parameters()}};
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
  const Way& way = trainer.way;
  std::vector<torch::optim::OptimizerParamGroup> groups = GroupsOf(way, trainer.network);
  const torch::optim::AdamWOptions adam = Adam(0.01, EpsilonOf(way));
  if (way.stage == 0 && way.sgd) {
    trainer.plain = std::make_unique<ddprun::FusedSGD>(std::move(groups), Sgd());
  } else if (way.stage == 0) {
    trainer.plain = std::make_unique<ddprun::FusedAdamW>(std::move(groups), adam);
  } else {
    ZeroOptions options;
    options.stage = way.stage;
    options.bucket_cap_mb = 0.06;
    options.offload_to_cpu = way.offload;
    options.find_unused_parameters = way.unused;
    if (way.groups) options.groups.swap(groups);
    absl::StatusOr<std::unique_ptr<ZeroOptimizer>> made =
        way.sgd ? ZeroOptimizer::Create(trainer.network.ptr(), trainer.context, Sgd(), options)
                : ZeroOptimizer::Create(trainer.network.ptr(), trainer.context, adam, options);
    DDPRUN_ASSIGN_OR_RETURN(trainer.zero, std::move(made));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Trainer>> MakeTrainer(Context& context, const Way& way) {
  // Different on every rank: the broadcast at the start must fix it.
  torch::manual_seed(way.alone || context.rank() == 0 ? 7 : 99);
  std::unique_ptr<Trainer> trainer(new Trainer{.context = context, .way = way});
  if (way.stage < 2 && !way.alone) {
    DDPRUN_ASSIGN_OR_RETURN(
        trainer->ddp, DistributedDataParallel::Create(trainer->network.ptr(), context,
                                                      {.find_unused_parameters = way.unused}));
  }
  DDPRUN_RETURN_IF_ERROR(MakeOptimizer(*trainer));
  return trainer;
}

void Pass(Trainer& trainer, bool use_extra) {
  const torch::Tensor x = torch::randn({kBatch, 40});
  const torch::Tensor y = torch::randint(10, {kBatch}, torch::kLong);
  const auto forward = [&] { return trainer.network(x, use_extra); };
  torch::Tensor output = trainer.ddp != nullptr ? trainer.ddp->Forward(forward) : forward();
  torch::Tensor loss = nn::functional::cross_entropy(output, y) / trainer.way.accumulate;
  if (trainer.way.scaler) loss = trainer.scaler.Scale(loss);
  loss.backward();
}

void Passes(Trainer& trainer, bool use_extra) {
  const Way& way = trainer.way;
  for (int i = 1; i < way.accumulate; ++i) {
    if (!way.no_sync) {
      Pass(trainer, use_extra);
    } else if (way.stage == 2) {
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

absl::Status Clip(Trainer& trainer) {
  if (trainer.zero != nullptr) return trainer.zero->ClipGradNorm(0.3).status();
  return ddprun::ClipGradNorm(*trainer.network, 0.3).status();
}

absl::Status TrainStep(Trainer& trainer, int step) {
  const Way& way = trainer.way;
  Clear(trainer);
  // The rate falls, so that what the program sets must reach the shares.
  if (!way.groups) {
    ddprun::SetLearningRate(trainer.optimizer(), (way.sgd ? 0.05 : kRate) / (1 + 0.01 * step));
  }
  // No rank uses it in every third step; then each in turn.
  const int turn = step % 3;
  Passes(trainer, !way.unused || turn == 1 + static_cast<int>(trainer.context.rank() % 2));
  if (way.scaler) trainer.scaler.Unscale(trainer.optimizer());
  if (way.clip) DDPRUN_RETURN_IF_ERROR(Clip(trainer));
  if (way.scaler) {
    trainer.scaler.Step(trainer.optimizer());
    trainer.scaler.Update();
  } else if (trainer.zero != nullptr) {
    DDPRUN_RETURN_IF_ERROR(trainer.zero->Step());
  } else {
    trainer.plain->step();
  }
  return absl::OkStatus();
}

absl::StatusOr<torch::Tensor> Train(Context& context, const Way& way) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer, MakeTrainer(context, way));
  torch::manual_seed(1000 + context.rank());
  for (int step = 0; step < way.steps; ++step) {
    DDPRUN_RETURN_IF_ERROR(TrainStep(*trainer, step));
  }
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& parameter : trainer->network->parameters()) {
    flat.push_back(parameter.detach().reshape({-1}).clone());
  }
  return torch::cat(flat);
}

// Pairs of a way without ZeRO and the same with it.
std::vector<Way> WaysOf(const Way& plain) {
  std::vector<Way> ways = {plain};
  for (const int stage : {1, 2}) {
    for (const bool offload : {false, true}) {
      Way way = plain;
      way.stage = stage;
      way.offload = offload;
      way.name = absl::StrCat("zero", stage, offload ? "_offload" : "", plain.name);
      ways.push_back(way);
    }
  }
  return ways;
}

absl::Status TrainAll(Context& context, bool all, std::ofstream& out) {
  std::vector<Way> plains = {
      {.name = ""},
      {.name = "_clip", .clip = true},
      {.name = "_scaler", .clip = true, .scaler = true},
      {.name = "_accumulate", .accumulate = 3},
      {.name = "_no_sync", .accumulate = 3, .no_sync = true},
      {.name = "_groups", .groups = true},
      {.name = "_sgd", .sgd = true},
      {.name = "_unused", .unused = true},
  };
  if (!all) plains.resize(2);
  for (const Way& plain : plains) {
    torch::Tensor expected;
    for (const Way& way : WaysOf(plain)) {
      if (way.offload && !plain.name.empty() && plain.name != "_clip") continue;
      DDPRUN_ASSIGN_OR_RETURN(torch::Tensor result, Train(context, way));
      if (way.stage == 0) {
        expected = result;
        continue;
      }
      out << way.name << " " << (result - expected).abs().max().item<double>() << "\n";
      torch::Tensor others = result.clone();
      DDPRUN_RETURN_IF_ERROR(context.Broadcast(others, 0));
      out << "same_on_ranks" << plain.name << " " << !others.equal(result) << "\n";
    }
    if (!plain.name.empty()) continue;
    DDPRUN_ASSIGN_OR_RETURN(const torch::Tensor alone,
                            Train(context, {.name = "alone", .alone = true}));
    out << "alone " << (alone - expected).abs().max().item<double>() << "\n";
  }
  return absl::OkStatus();
}

// Counts what lives of this process' tensors on the CPU, and the most that ever did.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int64_t live = live_ += static_cast<int64_t>(bytes);
    for (int64_t most = most_; live > most && !most_.compare_exchange_weak(most, live);) continue;
    auto* held = new Held{c10::GetDefaultCPUAllocator()->allocate(bytes), bytes};
    return {held->data.get(), held, &Free, c10::DeviceType::CPU};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  static int64_t live() { return live_; }
  static int64_t most() { return most_; }
  static void ForgetMost() { most_ = live_.load(); }

 private:
  struct Held {
    c10::DataPtr data;
    size_t bytes;
  };
  static void Free(void* context) {
    auto* held = static_cast<Held*>(context);
    live_ -= static_cast<int64_t>(held->bytes);
    delete held;
  }
  static inline std::atomic<int64_t> live_ = 0;
  static inline std::atomic<int64_t> most_ = 0;
};

// Three steps of a model of about a million parameters; then what lives, and what is answered.
absl::Status MeasureMemory(Context& context, const std::string& way, std::ofstream& out) {
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
  nn::Sequential model(nn::Linear(256, 1024), nn::ReLU(), nn::Linear(1024, 768), nn::ReLU(),
                       nn::Linear(768, 16));
  const int64_t parameters = CountingAllocator::live();
  std::unique_ptr<DistributedDataParallel> ddp;
  std::unique_ptr<torch::optim::Optimizer> plain;
  std::unique_ptr<ZeroOptimizer> zero;
  if (!absl::StartsWith(way, "2")) {
    DDPRUN_ASSIGN_OR_RETURN(ddp, DistributedDataParallel::Create(
                                     model.ptr(), context, {.gradient_as_bucket_view = true}));
  }
  if (way == "ddp") {
    plain = std::make_unique<ddprun::FusedAdamW>(model->parameters(), Adam());
  } else {
    DDPRUN_ASSIGN_OR_RETURN(
        zero, ZeroOptimizer::Create(model.ptr(), context, Adam(),
                                    {.stage = absl::StartsWith(way, "1") ? 1 : 2,
                                     .bucket_cap_mb = 0.5,
                                     .offload_to_cpu = absl::EndsWith(way, "offload")}));
  }
  for (int step = 0; step < 3; ++step) {
    if (step == 2) CountingAllocator::ForgetMost();
    const torch::Tensor x = torch::randn({4, 256});
    const auto forward = [&] { return model->forward(x); };
    torch::Tensor output = ddp != nullptr ? ddp->Forward(forward) : forward();
    output.square().mean().backward();
    if (zero != nullptr) {
      DDPRUN_RETURN_IF_ERROR(zero->Step());
    } else {
      plain->step();
    }
  }
  out << "parameters " << parameters << "\nlive " << CountingAllocator::live() - parameters
      << "\nmost " << CountingAllocator::most() - parameters << "\n";
  if (zero != nullptr) {
    const ddprun::ZeroMemory memory = zero->Memory();
    out << "gradients " << memory.gradients << "\nstate " << memory.optimizer_state
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

// Each on the second rank, or on all.
absl::Status Wrong(Context& context, const std::string& how) {
  const bool odd = context.rank() == 1;
  if (how == "options") {
    Network network;
    return ZeroOptimizer::Create(network.ptr(), context, Adam(), {.stage = odd ? 1 : 2}).status();
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Trainer> trainer,
                          MakeTrainer(context, {.name = how, .stage = 2}));
  if (how == "unused") {
    Pass(*trainer, false);
    return trainer->zero->Step();
  }
  if (how == "second") {
    Pass(*trainer, false);
    Pass(*trainer, true);
    return trainer->zero->Step();
  }
  Pass(*trainer, true);
  DDPRUN_RETURN_IF_ERROR(trainer->zero->FinishBackward());
  if (how == "clip") return ddprun::ClipGradNorm(*trainer->network, 1.0).status();
  if (odd) {
    torch::Tensor share = trainer->zero->param_groups()[0].params().at(1).grad();
    share[0] = std::numeric_limits<float>::quiet_NaN();
  }
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

int main(int argc, char** argv) { return ddprun::RunWorker(argc, argv, Main); }
