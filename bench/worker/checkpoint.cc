// What a checkpoint of 256 MiB costs training, for checkpoint_bench.py.
//   worker_bench_checkpoint DIRECTORY SAVES
// Prints a line of JSON, medians in seconds: one memcpy(3) of so much into memory that is there
// ("copy"), how long SaveAsync keeps training ("stall"; "first_stall": of the first one, which gets
// its memory from the kernel), and how long Save does ("save").
#include <ATen/Parallel.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/run_worker.h"

namespace {

constexpr int64_t kElements = int64_t{64} << 20;

struct Ballast : torch::nn::Module {
  torch::Tensor weight = register_parameter("weight", torch::rand({kElements}));
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <typename Function>
absl::Status Time(std::vector<double>& times, Function&& function) {
  const ddprun::Instant began = ddprun::MonotonicNow();
  const absl::Status status = function();
  times.push_back(absl::ToDoubleSeconds(ddprun::MonotonicNow() - began));
  return status;
}

absl::Status Run(int argc, char** argv) {
  int saves = 0;
  if (argc != 3 || !absl::SimpleAtoi(argv[2], &saves) || saves < 1) {
    return absl::InvalidArgumentError("usage: worker_bench_checkpoint DIRECTORY SAVES");
  }
  at::set_num_threads(1);
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<ddprun::Context> context,
                          ddprun::Context::Create());
  const auto module = std::make_shared<Ballast>();
  ddprun::FusedSGD optimizer(module->parameters(), torch::optim::SGDOptions(0.1));
  ddprun::Checkpointer checkpointer(*context, module, optimizer,
                                    {.directory = argv[1], .keep = 1, .tell_of_none = false});
  torch::Tensor other = torch::zeros_like(module->weight);
  std::vector<double> copies;
  std::vector<double> stalls;
  std::vector<double> whole;
  for (int64_t step = 0; step <= saves; ++step) {
    DDPRUN_RETURN_IF_ERROR(Time(copies, [&] {
      std::memcpy(other.mutable_data_ptr(), module->weight.const_data_ptr(), other.nbytes());
      return absl::OkStatus();
    }));
    DDPRUN_RETURN_IF_ERROR(
        Time(stalls, [&] { return checkpointer.SaveAsync({.step = 2 * step}); }));
    DDPRUN_RETURN_IF_ERROR(checkpointer.Wait());
    DDPRUN_RETURN_IF_ERROR(Time(whole, [&] { return checkpointer.Save({.step = 2 * step + 1}); }));
  }
  const double first = stalls.front();
  stalls.erase(stalls.begin());
  absl::PrintF("{\"copy\": %.6f, \"stall\": %.6f, \"first_stall\": %.6f, \"save\": %.6f}\n",
               Median(copies), Median(stalls), first, Median(whole));
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) { return ddprun::RunWorker(argc, argv, Run); }
