// What a user's own program may look like: consumer OUTPUT_DIR. Prints the first and the last loss.
#include <torch/nn/functional.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "all_headers.h"

namespace {

constexpr int64_t kSteps = 20;

absl::Status Train(int argc, char** argv) {
  if (argc != 2) return absl::InvalidArgumentError("usage: consumer OUTPUT_DIR");
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<ddprun::Context> context,
                          ddprun::Context::Create());
  ddprun::PrintStartBanner(*context, {.program = "consumer", .batch_size = 8});
  torch::nn::Linear model(16, 1);
  DDPRUN_ASSIGN_OR_RETURN(const auto ddp,
                          ddprun::DistributedDataParallel::Create(model.ptr(), *context));
  torch::optim::SGD optimizer(ddp->parameters(), 0.05);
  DDPRUN_ASSIGN_OR_RETURN(
      const auto metrics,
      ddprun::Metrics::Create(*context,
                              {.output_dir = argv[1], .every_steps = 1, .total_steps = kSteps}));
  torch::manual_seed(context->rank());
  for (int64_t step = 1; step <= kSteps; ++step) {
    const torch::Tensor inputs = torch::randn({8, 16});
    ddp->ZeroGrad();
    const torch::Tensor outputs = ddp->Forward([&] { return model->forward(inputs); });
    const torch::Tensor loss =
        torch::nn::functional::mse_loss(outputs, inputs.sum(1, /*keepdim=*/true));
    loss.backward();
    optimizer.step();
    DDPRUN_RETURN_IF_ERROR(metrics->Step(
        {.step = step, .loss = loss, .learning_rate = 0.05, .samples = inputs.size(0)}));
  }
  return context->Barrier();
}

}  // namespace

int main(int argc, char** argv) { return ddprun::RunWorker(argc, argv, Train); }
