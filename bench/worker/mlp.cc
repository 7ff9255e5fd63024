// A small MLP on the digits, trained for worker_bench.py; mlp.py is the same in Python.
//   worker_bench_mlp DATA BACKEND STEPS
// Rank 0 prints a JSON line: the moments (CLOCK_MONOTONIC, seconds) after the first step, at the
// begin and at the end of the measured steps; the last loss; and this process' largest resident
// memory in bytes.
#include <ATen/Parallel.h>
#include <sys/resource.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/run_worker.h"
#include "examples/digits/digits_data.h"

namespace {

namespace nn = torch::nn;

constexpr int64_t kBatch = 32;
constexpr int kWarmUpSteps = 10;

struct NetworkImpl : nn::Module {
  NetworkImpl()
      : a(register_module("a", nn::Linear(64, 128))),
        b(register_module("b", nn::Linear(128, 128))),
        c(register_module("c", nn::Linear(128, 10))) {}
  // [batch, 64] float. Returns logits [batch, 10].
  torch::Tensor forward(const torch::Tensor& x) { return c(torch::relu(b(torch::relu(a(x))))); }
  nn::Linear a, b, c;
};
TORCH_MODULE(Network);

double Now() { return static_cast<double>(ddprun::MonotonicNow().nanoseconds()) * 1e-9; }

struct Data {
  torch::Tensor images;  // [n, 64] float
  torch::Tensor labels;  // [n] int64
};

class Training {
 public:
  Training(Data data, ddprun::Context& context) : data_(std::move(data)), context_(context) {}

  absl::Status Run(int steps) {
    torch::manual_seed(0);
    Network network;
    DDPRUN_ASSIGN_OR_RETURN(ddp_, ddprun::DistributedDataParallel::Create(
                                      network.ptr(), context_, {.gradient_as_bucket_view = true}));
    ddprun::FusedAdamW optimizer(network->parameters(),
                                 torch::optim::AdamWOptions(1e-3).weight_decay(0.01));
    torch::manual_seed(100 + context_.rank());
    double first = 0;
    double begin = 0;
    for (int step = 0; step < kWarmUpSteps + steps; ++step) {
      if (step == kWarmUpSteps) begin = Now();
      TrainStep(network, optimizer);
      if (step == 0) first = Now();
    }
    const double end = Now();
    if (context_.is_main()) Print(first, begin, end);
    return absl::OkStatus();
  }

 private:
  void TrainStep(Network& network, ddprun::FusedAdamW& optimizer) {
    const torch::Tensor rows = torch::randint(data_.labels.size(0), {kBatch}, torch::kLong);
    const torch::Tensor logits =
        ddp_->Forward([&] { return network(data_.images.index_select(0, rows)); });
    const torch::Tensor loss =
        nn::functional::cross_entropy(logits, data_.labels.index_select(0, rows));
    ddp_->ZeroGrad();
    loss.backward();
    optimizer.step();
    loss_ = loss.item<double>();
  }

  void Print(double first, double begin, double end) const {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    absl::PrintF(
        "{\"first\": %.6f, \"begin\": %.6f, \"end\": %.6f, \"loss\": %.6f, "
        "\"rss\": %d, \"batch\": %d}\n",
        first, begin, end, loss_, usage.ru_maxrss * 1024, kBatch);
    std::fflush(stdout);
  }

  const Data data_;
  ddprun::Context& context_;
  std::unique_ptr<ddprun::DistributedDataParallel> ddp_;
  double loss_ = 0;
};

absl::Status Main(int argc, char** argv) {
  int steps = 0;
  if (argc != 4 || !absl::SimpleAtoi(argv[3], &steps) || steps <= 0) {
    return absl::InvalidArgumentError("usage: worker_bench_mlp DATA BACKEND STEPS");
  }
  at::set_num_threads(1);
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<ddprun::Context> context,
                          ddprun::Context::Create({.backend = argv[2]}));
  DDPRUN_ASSIGN_OR_RETURN(const ddprun::examples::DigitsData digits,
                          ddprun::examples::LoadDigits(argv[1]));
  Data data = {.images = torch::tensor(digits.pixels).view({digits.size(), -1}),
               .labels = torch::tensor(digits.labels)};
  return Training(std::move(data), *context).Run(steps);
}

}  // namespace

int main(int argc, char** argv) { return ddprun::RunWorker(argc, argv, Main); }
