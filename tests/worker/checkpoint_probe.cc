// A worker for the tests of checkpoints that hold more than module and optimizer.
//   checkpoint_probe BACKEND DIRECTORY FILE STEPS WORD...
// trains to STEPS, a checkpoint every 3, after resuming what DIRECTORY has. Writes parameters to
// FILE.RANK and, on rank 0, the whole optimizer's state to FILE.state, and logits of a fixed input
// to FILE.logits. Words:
//   zero1, zero2, zero3   with ZeroOptimizer; without: FusedAdamW under DDP
//   bare             stage 1 without DDP; by_hand: and averages gradients itself
//   sharded, offload, small_buckets   their options
//   scaler           scales the loss; its scale changes every few steps
//   power_sgd        compresses, under DDP
//   keep2            two checkpoints stay
//   async            checkpoints are written beside training
//   forget           doesn't add the two to the checkpoints
//   picky            adds a state that rank 1 can't take back
//   big              32 MiB of parameters more
//   tight, too_tight   resuming may take as much memory as big's state and 32 MiB, or half of it
#include <sys/resource.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/grad_scaler.h"
#include "ddprun/power_sgd.h"
#include "ddprun/zero_optimizer.h"
#include "tests/worker/probe_arguments.h"
#include "worker/torch/optim/optimizer_state.h"

namespace {

using ddprun::Context;
using ddprun::DistributedDataParallel;
using ddprun::GradScaler;
using ddprun::PowerSgd;
using ddprun::ZeroOptimizer;
namespace nn = torch::nn;

struct Job {
  std::string directory;
  std::string file;
  int64_t steps = 0;
  std::vector<std::string> words;

  bool Has(const std::string& word) const {
    return std::find(words.begin(), words.end(), word) != words.end();
  }
  // The ZeRO stage; 0 = none.
  int Stage() const { return Has("zero1") ? 1 : Has("zero2") ? 2 : Has("zero3") ? 3 : 0; }
};

constexpr int64_t kBigElements = int64_t{8} << 20;

struct Training {
  explicit Training(bool big) {
    // Tied: LibTorch lists the first layer's weight twice.
    model->register_parameter("tied", model[0]->as<nn::Linear>()->weight);
    if (big) ballast = model->register_parameter("ballast", torch::rand({kBigElements}));
  }

  nn::Sequential model = nn::Sequential(nn::Linear(20, 96), nn::GELU(), nn::Dropout(0.1),
                                        nn::Linear(96, 64), nn::GELU(), nn::Linear(64, 10));
  torch::Tensor ballast;
  std::shared_ptr<PowerSgd> power_sgd;
  GradScaler scaler = GradScaler({.init_scale = 256, .growth_interval = 4});
  std::unique_ptr<DistributedDataParallel> ddp;
  std::unique_ptr<ZeroOptimizer> zero;
  std::unique_ptr<torch::optim::Optimizer> plain;

  torch::optim::Optimizer& optimizer() { return zero != nullptr ? *zero : *plain; }
};

absl::Status SetUp(Context& context, const Job& job, Training& training) {
  const torch::optim::AdamWOptions adam = torch::optim::AdamWOptions(0.01).weight_decay(0.05);
  const int stage = job.Stage();
  if (stage < 2 && !job.Has("bare")) {
    ddprun::DistributedDataParallelOptions options;
    options.bucket_cap_mb = 0.01;
    if (job.Has("power_sgd")) {
      training.power_sgd = std::make_shared<PowerSgd>(ddprun::PowerSgdOptions{.start_step = 2});
      options.communication_hook = training.power_sgd;
    }
    DDPRUN_ASSIGN_OR_RETURN(
        training.ddp, DistributedDataParallel::Create(training.model.ptr(), context, options));
  }
  if (stage == 0) {
    training.plain = std::make_unique<ddprun::FusedAdamW>(training.model->parameters(), adam);
    return absl::OkStatus();
  }
  DDPRUN_ASSIGN_OR_RETURN(
      training.zero, ZeroOptimizer::Create(training.model.ptr(), context, adam,
                                           {.stage = stage,
                                            .bucket_cap_mb = job.Has("small_buckets") ? 0.005 : 1,
                                            .offload_to_cpu = job.Has("offload")}));
  return absl::OkStatus();
}

// In float64 and back: the last bits may be others than a reducer's, on each rank.
absl::Status Average(Context& context, Training& training) {
  for (const torch::Tensor& parameter : training.model->parameters()) {
    const torch::Tensor gradient = parameter.grad();
    torch::Tensor sum = gradient.to(torch::kDouble).contiguous();
    DDPRUN_RETURN_IF_ERROR(context.AllReduceSum(sum));
    gradient.copy_(sum / context.world_size());
    gradient.mul_(1 + 1e-6 * context.rank());
  }
  return absl::OkStatus();
}

absl::Status TrainStep(Context& context, const Job& job, Training& training) {
  if (training.zero != nullptr) {
    training.zero->ZeroGrad();
  } else {
    training.ddp->ZeroGrad();
  }
  const torch::Tensor x = torch::randn({16, 20});
  const torch::Tensor y = torch::randint(10, {16}, torch::kLong);
  const auto forward = [&] { return training.model->forward(x); };
  const torch::Tensor output = training.ddp != nullptr ? training.ddp->Forward(forward) : forward();
  torch::Tensor loss = nn::functional::cross_entropy(output, y);
  if (training.ballast.defined()) loss = loss + training.ballast.sum();
  if (!job.Has("scaler")) {
    loss.backward();
    if (job.Has("by_hand")) DDPRUN_RETURN_IF_ERROR(Average(context, training));
    training.optimizer().step();
    return absl::OkStatus();
  }
  // The scale weighs in, so that another one leads elsewhere.
  loss = loss * (1 + 0.01 * training.scaler.scale());
  training.scaler.Scale(loss).backward();
  DDPRUN_RETURN_IF_ERROR(training.scaler.Step(training.optimizer()).status());
  return training.scaler.Update();
}

void Write(std::ofstream& file, const torch::Tensor& tensor) {
  const torch::Tensor plain = tensor.detach().cpu().contiguous();
  file.write(static_cast<const char*>(plain.const_data_ptr()),
             static_cast<std::streamsize>(plain.nbytes()));
}

absl::Status Dump(Context& context, const Job& job, Training& training) {
  std::ofstream parameters(absl::StrCat(job.file, ".", context.rank()), std::ios::binary);
  for (const torch::Tensor& tensor : training.model->parameters()) Write(parameters, tensor);
  training.model->eval();
  const torch::NoGradGuard no_grad;
  const torch::Tensor logits = training.model->forward(torch::linspace(-1, 1, 80).view({4, 20}));
  training.model->train();
  ddprun::ZeroState state;
  if (training.zero != nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(state, training.zero->ConsolidatedState());
  } else {
    DDPRUN_ASSIGN_OR_RETURN(state, ddprun::worker::GetOptimizerState(*training.plain));
  }
  if (!context.is_main()) return absl::OkStatus();
  std::ofstream logits_file(job.file + ".logits", std::ios::binary);
  Write(logits_file, logits);
  std::ofstream file(job.file + ".state", std::ios::binary);
  for (const auto& [name, tensor] : state) {
    file << name << c10::str(tensor.sizes());
    Write(file, tensor);
  }
  return absl::OkStatus();
}

// What the process may have of private memory that it can write: RLIMIT_DATA.
void LimitMemory(rlim_t bytes) {
  const rlimit limit = {.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
  DDPRUN_CHECK(setrlimit(RLIMIT_DATA, &limit) == 0, "setrlimit");
}

// What it has now.
rlim_t PrivateBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (absl::StartsWith(line, "VmData:")) return std::stoull(line.substr(7)) * 1024;
  }
  DDPRUN_CHECK(false, "no VmData");
}

class Picky : public ddprun::CheckpointedState {
 public:
  explicit Picky(bool refuses) : refuses_(refuses) {}
  Tensors SaveState() const override { return {{"taste", torch::ones({1})}}; }
  absl::Status RestoreState(const Tensors& /*state*/) override {
    return refuses_ ? absl::FailedPreconditionError("this taste isn't mine") : absl::OkStatus();
  }

 private:
  const bool refuses_;
};

absl::StatusOr<std::optional<ddprun::TrainingProgress>> Restore(
    const Job& job, ddprun::Checkpointer& checkpointer) {
  // AdamW's two moments.
  constexpr rlim_t kState = 2 * kBigElements * sizeof(float);
  constexpr rlim_t kOther = rlim_t{32} << 20;
  if (job.Has("tight")) LimitMemory(PrivateBytes() + kState + kOther);
  if (job.Has("too_tight")) LimitMemory(PrivateBytes() + kState / 2 + kOther / 2);
  auto resumed = checkpointer.Restore();
  LimitMemory(RLIM_INFINITY);
  return resumed;
}

absl::Status Run(Context& context, const Job& job) {
  torch::manual_seed(context.rank());
  Training training(job.Has("big"));
  DDPRUN_RETURN_IF_ERROR(SetUp(context, job, training));
  ddprun::Checkpointer checkpointer(context, training.model.ptr(), training.optimizer(),
                                    {.directory = job.directory,
                                     .keep = job.Has("keep2") ? 2U : 3U,
                                     .sharded = job.Has("sharded")});
  if (!job.Has("forget")) {
    if (job.Has("scaler")) checkpointer.Add("scaler", training.scaler);
    if (job.Has("power_sgd")) checkpointer.Add("power_sgd", *training.power_sgd);
  }
  Picky picky(/*refuses=*/context.rank() == 1);
  if (job.Has("picky")) checkpointer.Add("picky", picky);
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<ddprun::TrainingProgress> resumed,
                          Restore(job, checkpointer));
  int64_t step = resumed.value_or(ddprun::TrainingProgress{}).step;
  printf("resumed at %ld\n", static_cast<long>(step));
  fflush(stdout);
  while (step < job.steps) {
    DDPRUN_RETURN_IF_ERROR(TrainStep(context, job, training));
    if (++step % 3 != 0) continue;
    DDPRUN_RETURN_IF_ERROR(job.Has("async") ? checkpointer.SaveAsync({.step = step})
                                            : checkpointer.Save({.step = step}));
  }
  DDPRUN_RETURN_IF_ERROR(Dump(context, job, training));
  return context.Barrier();
}

absl::Status Main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 4) {
    return absl::InvalidArgumentError("see the head of checkpoint_probe.cc for its arguments");
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context,
                          Context::Create({.backend = arguments[0]}));
  return Run(*context, {.directory = arguments[1],
                        .file = arguments[2],
                        .steps = std::stoll(arguments[3]),
                        .words = {arguments.begin() + 4, arguments.end()}});
}

}  // namespace

int main(int argc, char** argv) { return ddprun::testing::RunProbe(argc, argv, Main); }
