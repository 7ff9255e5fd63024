// A worker for the tests: trains a small network on generated data, and misbehaves on request.
//   ddp_probe train FILE MODE...         20 steps; parameters and buffers to FILE.MODE.RANK, and
//                                        what the logger measured to FILE.MODE.RANK.statistics
//   ddp_probe die kill|throw|mismatch|none   at step 3 the last rank fails (mismatch: all)
//   ddp_probe die first                  rank 0 fails at once; the others stop, and come later
//   ddp_probe resume DIRECTORY STEPS FILE [DIE_AT [no_buckets]]   a checkpoint every 3 steps,
//                                        resumes by itself; no_buckets: their order isn't saved
//   ddp_probe wrong HOW checked|unchecked   the second rank does something else: model, device,
//   uneven, skip, order, stop, nan_loss, nan_gradient, ragged, backend, other_backend; all do:
//   no_backend
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "ddprun/checkpointer.h"
#include "ddprun/clip_grad_norm.h"
#include "ddprun/communication_hook.h"
#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/grad_scaler.h"
#include "ddprun/parameters.h"
#include "ddprun/power_sgd.h"
#include "tests/worker/probe_arguments.h"

namespace {

using ddprun::Context;
using ddprun::DistributedDataParallel;
using ddprun::DistributedDataParallelOptions;
namespace nn = torch::nn;

constexpr int kSteps = 20;

struct NetworkImpl : nn::Module {
  explicit NetworkImpl(double dropout = 0, bool tied = false)
      : a(register_module("a", nn::Linear(20, 64))),
        norm(register_module("norm", nn::BatchNorm1d(64))),
        b(register_module("b", nn::Linear(64, 64))),
        extra(register_module("extra", tied ? b : nn::Linear(64, 64))),
        c(register_module("c", nn::Linear(64, 10))),
        drop(register_module("drop", nn::Dropout(dropout))) {}

  torch::Tensor forward(torch::Tensor x, bool use_extra) {
    x = torch::relu(norm(a(x)));
    x = drop(torch::relu(b(x)));
    if (use_extra) x = x + extra(x);
    return c(x);
  }

  nn::Linear a;
  nn::BatchNorm1d norm;
  nn::Linear b, extra, c;
  nn::Dropout drop;
};
TORCH_MODULE(Network);

// A user's hook that needs two collectives a bucket; the sum of its effects is a plain average.
class TwoHalves : public ddprun::CommunicationHook {
 public:
  std::string name() const override { return "two_halves"; }

  absl::Status Average(ddprun::GradientBucket& bucket, ddprun::Group& group) override {
    bucket.buffer.div_(group.world_size());
    const int64_t middle = bucket.buffer.numel() / 2;
    torch::Tensor first = bucket.buffer.slice(0, 0, middle);
    torch::Tensor second = bucket.buffer.slice(0, middle);
    DDPRUN_RETURN_IF_ERROR(group.AllReduceSum(first));
    return group.AllReduceSum(second);
  }
};

// Fails in the third bucket that it sees.
class FailingHook : public ddprun::CommunicationHook {
 public:
  std::string name() const override { return "failing"; }

  absl::Status Average(ddprun::GradientBucket& bucket, ddprun::Group& group) override {
    if (++buckets_ == 3) return absl::DataLossError("bucket of nothing");
    return group.AllReduceSum(bucket.buffer);
  }

 private:
  int buckets_ = 0;
};

ddprun::PowerSgdOptions PowerSgdOptionsOf(const std::string& mode) {
  ddprun::PowerSgdOptions options;
  options.start_step = 2;
  if (mode == "power_sgd_full") {
    options.matrix_approximation_rank = 1000;  // cut down to what each matrix has
    options.min_compression_rate = 0;
  }
  return options;
}

DistributedDataParallelOptions OptionsOf(const std::string& mode) {
  DistributedDataParallelOptions options;
  const bool small_buckets =
      absl::EndsWith(mode, "bucket") || mode == "own_hook" || absl::StartsWith(mode, "power_sgd");
  if (small_buckets) options.bucket_cap_mb = 0.005;
  options.gradient_as_bucket_view = absl::StrContains(mode, "view");
  options.find_unused_parameters = absl::EndsWith(mode, "unused");
  options.static_graph = mode == "static";
  options.broadcast_buffers = mode != "no_buffers";
  options.init_sync = mode != "no_init_sync";
  if (mode == "allreduce") options.built_in_hook = ddprun::BuiltInHook::kAllReduce;
  if (mode == "fp16") options.built_in_hook = ddprun::BuiltInHook::kFloat16;
  if (mode == "bf16") options.built_in_hook = ddprun::BuiltInHook::kBFloat16;
  if (mode == "own_hook") options.communication_hook = std::make_shared<TwoHalves>();
  if (mode == "failing_hook") options.communication_hook = std::make_shared<FailingHook>();
  if (absl::StartsWith(mode, "power_sgd")) {
    options.communication_hook = std::make_shared<ddprun::PowerSgd>(PowerSgdOptionsOf(mode));
  }
  return options;
}

// The raw bits, in the module's order.
void Dump(const nn::Module& module, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  const auto write = [&](const torch::Tensor& tensor) {
    const torch::Tensor plain = tensor.detach().to(torch::kFloat).contiguous();
    file.write(static_cast<const char*>(plain.const_data_ptr()),
               static_cast<std::streamsize>(plain.nbytes()));
  };
  for (const torch::Tensor& tensor : ddprun::Parameters(module)) write(tensor);
  for (const torch::Tensor& tensor : ddprun::Buffers(module)) write(tensor);
}

struct Batch {
  torch::Tensor x = torch::randn({16, 20});
  torch::Tensor y = torch::randint(10, {16}, torch::kLong);
};

void Step(Network& network, DistributedDataParallel& ddp, bool use_extra) {
  const Batch batch;
  const torch::Tensor output = ddp.Forward([&] { return network(batch.x, use_extra); });
  nn::functional::cross_entropy(output, batch.y).backward();
}

// Steps of a rank: fewer on the second one where the inputs are uneven.
int StepsOf(const std::string& mode, uint32_t rank) {
  return absl::StartsWith(mode, "join") && rank == 1 ? 13 : kSteps;
}

absl::Status TrainSteps(const std::string& mode, uint32_t rank, Network& network,
                        DistributedDataParallel& ddp) {
  torch::optim::SGD optimizer(ddprun::Parameters(*network),
                              torch::optim::SGDOptions(0.05).momentum(0.9));
  for (int step = 0; step < StepsOf(mode, rank); ++step) {
    ddp.ZeroGrad();
    if (mode == "no_sync") {
      const DistributedDataParallel::NoSync guard(ddp);
      Step(network, ddp, true);
    }
    const bool always_used = !absl::EndsWith(mode, "unused");
    Step(network, ddp, always_used || (static_cast<int>(rank) + step) % 3 == 0);
    optimizer.step();
  }
  return absl::OkStatus();
}

// Writes lines "name value".
void DumpStatistics(const DistributedDataParallel& ddp, const std::string& path) {
  const ddprun::DistributedDataParallelStatistics statistics = ddp.Statistics();
  std::ofstream file(path);
  file << "step " << statistics.step << "\nbuckets " << statistics.bucket_bytes.size() << "\nhook "
       << statistics.communication_hook << "\nforward_ns "
       << absl::ToInt64Nanoseconds(statistics.forward) << "\ncommunication_ns "
       << absl::ToInt64Nanoseconds(statistics.communication) << "\nworld_size "
       << statistics.integers.at("world_size") << "\n";
}

// Two optimizers and one GradScaler. The scaler's factors are no powers of two, so that its scale
// shows in the parameters. Every fifth step one of the two overflows, in turn.
absl::Status TrainScaled(Network& network, DistributedDataParallel& ddp) {
  std::vector<torch::Tensor> parts[2];
  for (const auto& item : network->named_parameters()) {
    parts[item.key()[0] == 'c' ? 1 : 0].push_back(item.value());
  }
  torch::optim::SGD body(parts[0], torch::optim::SGDOptions(0.05).momentum(0.9));
  torch::optim::SGD head(parts[1], torch::optim::SGDOptions(0.03));
  ddprun::GradScaler scaler(
      {.init_scale = 1000, .growth_factor = 1.7, .backoff_factor = 0.3, .growth_interval = 3});
  for (int step = 0; step < kSteps; ++step) {
    ddp.ZeroGrad();
    const Batch batch;
    const torch::Tensor output = ddp.Forward([&] { return network(batch.x, true); });
    scaler.Scale(nn::functional::cross_entropy(output, batch.y)).backward();
    if (step % 5 == 4) {
      const torch::Tensor& hit = step % 2 == 0 ? network->a->bias : network->c->bias;
      hit.grad()[0] = std::numeric_limits<float>::infinity();
    }
    if (step % 3 == 0) DDPRUN_RETURN_IF_ERROR(scaler.Unscale(head));
    DDPRUN_RETURN_IF_ERROR(scaler.Step(body).status());
    DDPRUN_RETURN_IF_ERROR(scaler.Step(head).status());
    DDPRUN_RETURN_IF_ERROR(scaler.Update());
  }
  return absl::OkStatus();
}

absl::Status TrainMode(Context& context, const std::string& mode, const std::string& file) {
  const uint32_t rank = context.rank();
  // Different on every rank: the broadcast at the start must fix it.
  torch::manual_seed(rank == 0 ? 7 : 99);
  Network network(/*dropout=*/0, /*tied=*/absl::StrContains(mode, "tied"));
  const DistributedDataParallelOptions options = OptionsOf(mode);
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<DistributedDataParallel> ddp,
                          DistributedDataParallel::Create(network.ptr(), context, options));
  torch::manual_seed(1000 + rank);
  const auto train = [&] {
    return mode == "scaler" ? TrainScaled(network, *ddp) : TrainSteps(mode, rank, network, *ddp);
  };
  DDPRUN_RETURN_IF_ERROR(
      absl::StartsWith(mode, "join")
          ? ddp->Join(train, {.divide_by_initial_world_size = mode != "join_active",
                              .throw_on_early_termination = mode == "join_throw"})
          : train());
  const std::string path = absl::StrCat(file, ".", mode, ".", rank);
  Dump(*network, path);
  DumpStatistics(*ddp, path + ".statistics");
  if (const auto power_sgd =
          std::dynamic_pointer_cast<ddprun::PowerSgd>(options.communication_hook)) {
    std::ofstream(path + ".statistics", std::ios::app)
        << "sent_share " << power_sgd->sent_share() << "\n";
  }
  return absl::OkStatus();
}

absl::Status Train(const std::string& file, const std::vector<std::string>& modes) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context,
                          Context::Create({.backend = "gloo"}));
  for (const std::string& mode : modes) {
    DDPRUN_RETURN_IF_ERROR(TrainMode(*context, mode, file));
  }
  return context->Barrier();
}

void Misbehave(const std::string& how) {
  if (how == "kill") raise(SIGKILL);
  if (how == "throw") throw std::runtime_error("bad sample 17");
}

// A collective of another size on the last rank.
absl::Status Mismatch(Context& context, bool last) {
  torch::Tensor tensor = torch::ones({last ? 3 : 1000});
  return context.AllReduceSum(tensor);
}

absl::Status DieFirst(Context& context) {
  // Gloo's ranks are not all connected when one of them is. A rank that ended then would break up
  // the connecting rather than be a peer that failed later, and rank 1 would not get so far.
  const absl::Status met = context.Barrier();
  if (context.rank() == 0) return met.ok() ? absl::NotFoundError("no sample is left") : met;
  raise(SIGSTOP);
  return context.Barrier();
}

absl::Status Die(const std::string& how) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::Create());
  if (how == "first") return DieFirst(*context);
  Network network;
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<DistributedDataParallel> ddp,
                          DistributedDataParallel::Create(network.ptr(), *context));
  for (int step = 0; step < kSteps; ++step) {
    const bool last = context->rank() + 1 == context->world_size();
    if (step == 3 && last) Misbehave(how);
    if (step == 3 && how == "mismatch") DDPRUN_RETURN_IF_ERROR(Mismatch(*context, last));
    ddp->ZeroGrad();
    Step(network, *ddp, true);
  }
  return absl::OkStatus();
}

absl::Status Resume(const std::string& directory, int64_t steps, const std::string& file,
                    int64_t die_at, bool saves_buckets) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::Create());
  torch::manual_seed(context->rank());
  Network network(0.2);  // draws from the random generator in every step
  DDPRUN_ASSIGN_OR_RETURN(
      const std::unique_ptr<DistributedDataParallel> ddp,
      DistributedDataParallel::Create(network.ptr(), *context, {.gradient_as_bucket_view = true}));
  torch::optim::AdamW optimizer(network->parameters(), torch::optim::AdamWOptions(0.01));
  ddprun::Checkpointer checkpointer(*context, network.ptr(), optimizer, {.directory = directory});
  if (saves_buckets) checkpointer.Add("buckets", ddp->buckets());
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<ddprun::TrainingProgress> resumed,
                          checkpointer.Restore());
  int64_t step = resumed.value_or(ddprun::TrainingProgress{}).step;
  printf("resumed at %ld\n", static_cast<long>(step));
  fflush(stdout);
  while (step < steps) {
    ddp->ZeroGrad();
    Step(network, *ddp, true);
    DDPRUN_RETURN_IF_ERROR(ddp->FinishStep().status());
    optimizer.step();
    ++step;
    if (step == die_at) raise(SIGKILL);
    if (step % 3 == 0) DDPRUN_RETURN_IF_ERROR(checkpointer.Save({.step = step}));
  }
  Dump(*network, absl::StrCat(file, ".", context->rank()));
  return absl::OkStatus();
}

// Says when the mistake is made, on the clock that all processes share.
void SayMistake() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  printf("mistake %lld\n", static_cast<long long>(std::chrono::nanoseconds(now).count()));
  fflush(stdout);
}

// On the second rank a layer is narrower, or a parameter is on another device.
absl::Status WrongModel(Context& context, const std::string& how) {
  const bool wrong = context.rank() == 1;
  nn::Sequential model(nn::Linear(20, 64), nn::Linear(64, wrong && how == "model" ? 32 : 48));
  if (wrong && how == "device") model->register_parameter("odd", torch::empty({2}, torch::kMeta));
  if (wrong) SayMistake();
  return DistributedDataParallel::Create(model.ptr(), context).status();
}

// Samples of the last batch: on the second rank one is too short.
torch::Tensor Samples(bool ragged) {
  std::vector<torch::Tensor> samples(16, torch::ones({20}));
  if (ragged) samples[3] = torch::ones({19});
  return torch::stack(samples);
}

// In the sixth step the second rank has a parameter, a gradient or a sample that is no good.
absl::Status WrongNumbers(Context& context, const std::string& how) {
  Network network;
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<DistributedDataParallel> ddp,
                          DistributedDataParallel::Create(network.ptr(), context));
  for (int step = 0; step < kSteps; ++step) {
    const bool wrong = context.rank() == 1 && step == 5;
    if (wrong) SayMistake();
    const torch::Tensor input = Samples(wrong && how == "ragged");
    ddp->ZeroGrad();
    if (wrong && how == "nan_loss") {
      const torch::NoGradGuard no_grad;
      network->b->weight[0][0] = std::numeric_limits<float>::quiet_NaN();
    }
    const torch::Tensor output = ddp->Forward([&] { return network(input, true); });
    torch::Tensor loss = output.square().mean();
    if (how == "nan_loss") DDPRUN_RETURN_IF_ERROR(ddprun::CheckLoss(loss, *network));
    if (wrong && how == "nan_gradient") loss = loss * std::numeric_limits<float>::infinity();
    loss.backward();
    DDPRUN_RETURN_IF_ERROR(ddprun::ClipGradNorm(*network, 1.0).status());
  }
  return absl::OkStatus();
}

std::string BackendOf(const std::string& how) {
  const bool second = std::getenv("RANK") == std::string("1");
  if (how == "no_backend" || (how == "backend" && second)) return "gluu";
  return how == "other_backend" && second ? "shm" : "gloo";
}

absl::Status WrongOrder(Context& context) {
  SayMistake();
  if (context.rank() == 1) return context.Barrier();
  torch::Tensor tensor = torch::ones({1000});
  return context.AllReduceSum(tensor);
}

// The second rank has fewer batches (uneven), leaves out a backward pass (skip), or stops (stop).
absl::Status WrongSteps(Context& context, const std::string& how) {
  Network network;
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<DistributedDataParallel> ddp,
                          DistributedDataParallel::Create(network.ptr(), context));
  const bool wrong = context.rank() == 1;
  for (int step = 0; step < kSteps; ++step) {
    if (wrong && step == (how == "uneven" ? 13 : 5)) SayMistake();
    if (wrong && how == "uneven" && step == 13) return absl::OkStatus();
    ddp->ZeroGrad();
    const Batch batch;
    const torch::Tensor output = ddp->Forward([&] { return network(batch.x, true); });
    if (wrong && how == "skip" && step == 5) continue;
    if (wrong && how == "stop" && step == 5) raise(SIGSTOP);
    nn::functional::cross_entropy(output, batch.y).backward();
  }
  return absl::OkStatus();
}

absl::Status Wrong(const std::string& how, bool checked) {
  if (absl::EndsWith(how, "backend")) SayMistake();
  DDPRUN_ASSIGN_OR_RETURN(
      const std::unique_ptr<Context> context,
      Context::Create({.backend = BackendOf(how),
                       .collective_timeout = absl::Seconds(how == "stop" ? 5 : 60),
                       .check_collectives = checked}));
  if (how == "model" || how == "device") return WrongModel(*context, how);
  if (absl::StartsWith(how, "nan") || how == "ragged") return WrongNumbers(*context, how);
  if (how == "order") return WrongOrder(*context);
  return WrongSteps(*context, how);
}

absl::Status Main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() >= 3 && arguments[0] == "train") {
    return Train(arguments[1], {arguments.begin() + 2, arguments.end()});
  }
  if (arguments.size() == 3 && arguments[0] == "wrong") {
    return Wrong(arguments[1], arguments[2] == "checked");
  }
  if (arguments.size() == 2 && arguments[0] == "die") return Die(arguments[1]);
  if (arguments.size() >= 4 && arguments[0] == "resume") {
    const int64_t die_at = arguments.size() > 4 ? std::stoll(arguments[4]) : -1;
    const bool saves_buckets = arguments.size() <= 5 || arguments[5] != "no_buckets";
    return Resume(arguments[1], std::stoll(arguments[2]), arguments[3], die_at, saves_buckets);
  }
  return absl::InvalidArgumentError("see the head of ddp_probe.cc for its arguments");
}

}  // namespace

int main(int argc, char** argv) { return ddprun::testing::RunProbe(argc, argv, Main); }
