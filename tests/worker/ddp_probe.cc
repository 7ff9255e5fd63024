// A worker for the tests: trains a small network on generated data, and misbehaves on request.
//   ddp_probe train MODE FILE            20 steps; parameters and buffers to FILE.MODE.RANK
//   ddp_probe die kill|throw|mismatch|none   at step 3 the last rank fails (mismatch: all)
//   ddp_probe resume DIRECTORY STEPS FILE [DIE_AT]   a checkpoint every 3 steps, resumes by itself
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <csignal>
#include <fstream>
#include <stdexcept>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/run_worker.h"

namespace {

using ddprun::Context;
using ddprun::DistributedDataParallel;
using ddprun::DistributedDataParallelOptions;
namespace nn = torch::nn;

constexpr int kSteps = 20;

struct NetworkImpl : nn::Module {
  explicit NetworkImpl(double dropout = 0)
      : a(register_module("a", nn::Linear(20, 64))),
        norm(register_module("norm", nn::BatchNorm1d(64))),
        b(register_module("b", nn::Linear(64, 64))),
        extra(register_module("extra", nn::Linear(64, 64))),
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

DistributedDataParallelOptions OptionsOf(const std::string& mode) {
  DistributedDataParallelOptions options;
  if (mode == "bucket" || mode == "view_bucket") options.bucket_cap_mb = 0.005;
  options.gradient_as_bucket_view = mode == "view" || mode == "view_bucket";
  options.find_unused_parameters = mode == "unused";
  options.static_graph = mode == "static";
  options.broadcast_buffers = mode != "no_buffers";
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
  for (const torch::Tensor& tensor : module.parameters()) write(tensor);
  for (const torch::Tensor& tensor : module.buffers()) write(tensor);
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

absl::Status Train(const std::string& mode, const std::string& file) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::Create());
  const int rank = static_cast<int>(context->rank());
  // Different on every rank: the broadcast at the start must fix it.
  torch::manual_seed(rank == 0 ? 7 : 99);
  Network network;
  DDPRUN_ASSIGN_OR_RETURN(
      const std::unique_ptr<DistributedDataParallel> ddp,
      DistributedDataParallel::Create(network.ptr(), *context, OptionsOf(mode)));
  torch::optim::SGD optimizer(network->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  torch::manual_seed(static_cast<uint64_t>(1000 + rank));
  for (int step = 0; step < kSteps; ++step) {
    ddp->ZeroGrad();
    if (mode == "no_sync") {
      const DistributedDataParallel::NoSync guard(*ddp);
      Step(network, *ddp, true);
    }
    Step(network, *ddp, mode != "unused" || (rank + step) % 3 == 0);
    optimizer.step();
  }
  Dump(*network, absl::StrCat(file, ".", mode, ".", rank));
  return absl::OkStatus();
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

absl::Status Die(const std::string& how) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::Create());
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
                    int64_t die_at) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::Create());
  torch::manual_seed(context->rank());
  Network network(0.2);  // draws from the random generator in every step
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<DistributedDataParallel> ddp,
                          DistributedDataParallel::Create(network.ptr(), *context));
  torch::optim::AdamW optimizer(network->parameters(), torch::optim::AdamWOptions(0.01));
  ddprun::Checkpointer checkpointer(*context, network.ptr(), optimizer, {.directory = directory});
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<ddprun::TrainingProgress> resumed,
                          checkpointer.Restore());
  int64_t step = resumed.value_or(ddprun::TrainingProgress{}).step;
  printf("resumed at %ld\n", static_cast<long>(step));
  fflush(stdout);
  while (step < steps) {
    ddp->ZeroGrad();
    Step(network, *ddp, true);
    optimizer.step();
    ++step;
    if (step == die_at) raise(SIGKILL);
    if (step % 3 == 0) DDPRUN_RETURN_IF_ERROR(checkpointer.Save({.step = step}));
  }
  Dump(*network, absl::StrCat(file, ".", context->rank()));
  return absl::OkStatus();
}

absl::Status Main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 3 && arguments[0] == "train") return Train(arguments[1], arguments[2]);
  if (arguments.size() == 2 && arguments[0] == "die") return Die(arguments[1]);
  if (arguments.size() >= 4 && arguments[0] == "resume") {
    const int64_t die_at = arguments.size() > 4 ? std::stoll(arguments[4]) : -1;
    return Resume(arguments[1], std::stoll(arguments[2]), arguments[3], die_at);
  }
  return absl::InvalidArgumentError("see the head of ddp_probe.cc for its arguments");
}

}  // namespace

int main(int argc, char** argv) { return ddprun::RunWorker(argc, argv, Main); }
