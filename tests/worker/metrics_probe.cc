// A worker for the tests: records metrics as its arguments say.
//   metrics_probe DIRECTORY FIRST LAST EVERY [together|alone] [die]
// Steps FIRST to LAST, a record at each one that EVERY divides. The loss is the step's number and
// ten times the rank. die: rank 0 is killed after the last step.
#include <ATen/ops/full.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules/linear.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/metrics.h"
#include "ddprun/run_worker.h"
#include "ddprun/start_banner.h"
#include "ddprun/status_macros.h"

namespace {

using ddprun::Context;
using ddprun::DistributedDataParallel;
using ddprun::Metrics;

struct Task {
  std::string directory;
  int64_t first = 1;
  int64_t last = 20;
  int64_t every = 10;
  bool together = true;
  bool die = false;
};

absl::Status Run(const Task& task) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::Create());
  ddprun::PrintStartBanner(*context,
                           {.program = "probe", .batch_size = 4, .dataset_samples = 29'500});
  torch::nn::Linear model(64, 64);
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<DistributedDataParallel> ddp,
                          DistributedDataParallel::Create(model.ptr(), *context));
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Metrics> metrics,
                          Metrics::Create(*context, {.output_dir = task.directory,
                                                     .every_steps = task.every,
                                                     .total_steps = task.last,
                                                     .resumed_step = task.first - 1,
                                                     .combine_ranks = task.together}));
  metrics->Watch(*ddp);
  for (int64_t step = task.first; step <= task.last; ++step) {
    ddp->ZeroGrad();
    ddp->Forward([&] { return model->forward(torch::ones({4, 64})); }).sum().backward();
    const auto loss = static_cast<double>(step + 10 * context->rank());
    DDPRUN_RETURN_IF_ERROR(metrics->Step({.step = step,
                                          .loss = torch::full({}, loss),
                                          .learning_rate = 0.125,
                                          .samples = 4,
                                          .data_time = absl::Microseconds(1),
                                          .gradient_norm = 2.5}));
    metrics->Scalar("evaluation/accuracy", step, 0.5);
  }
  if (task.die && context->is_main()) raise(SIGKILL);
  return context->Barrier();
}

absl::Status Main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 4) return absl::InvalidArgumentError("see the head of metrics_probe.cc");
  Task task = {.directory = words[0],
               .first = std::stoll(words[1]),
               .last = std::stoll(words[2]),
               .every = std::stoll(words[3])};
  for (size_t i = 4; i < words.size(); ++i) {
    if (words[i] == "alone") task.together = false;
    if (words[i] == "die") task.die = true;
  }
  return Run(task);
}

}  // namespace

int main(int argc, char** argv) { return ddprun::RunWorker(argc, argv, Main); }
