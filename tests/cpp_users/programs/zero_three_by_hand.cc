// ZeRO of stage 3 in a loop of one's own.
// EXPECT: equal within 1e-4
// RUN: %out
#include <ddprun/checkpointer.h>
#include <ddprun/context.h>
#include <ddprun/run_worker.h>
#include <ddprun/status_macros.h>
#include <ddprun/zero_optimizer.h>
#include <torch/torch.h>

#include <cstdio>
#include <memory>

absl::Status Train(int /*argc*/, char** argv) {
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<ddprun::Context> context,
                          ddprun::Context::Create());
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
  const torch::Tensor x = torch::randn({240, 6});
  const torch::Tensor y = x.pow(2).mean(1, true);
  DDPRUN_ASSIGN_OR_RETURN(const auto zero,
                          ddprun::ZeroOptimizer::Create(
                              net.ptr(), *context, torch::optim::AdamWOptions(0.01), {.stage = 3}));
  ddprun::Checkpointer checkpointer(*context, net.ptr(), *zero,
                                    {.directory = argv[1], .sharded = true});
  DDPRUN_ASSIGN_OR_RETURN(const auto resumed, checkpointer.Restore());
  const int64_t mine = 12 / static_cast<int64_t>(context->world_size());
  for (int64_t step = resumed.value_or(ddprun::TrainingProgress()).step + 1; step <= 600; ++step) {
    const int64_t begin = (step - 1) % 20 * 12 + mine * context->rank();
    const torch::Tensor inputs = x.slice(0, begin, begin + mine);
    zero->ZeroGrad();
    const torch::Tensor guess = net->forward(inputs);
    torch::nn::functional::mse_loss(guess, y.slice(0, begin, begin + mine)).backward();
    DDPRUN_RETURN_IF_ERROR(zero->ClipGradNorm(1).status());
    DDPRUN_RETURN_IF_ERROR(zero->Step());
    if (step % 10 == 0) DDPRUN_RETURN_IF_ERROR(checkpointer.SaveAsync({.step = step}));
    if (context->is_main())
      std::printf("step %ld of generation %lu\n", step, context->generation());
  }
  return checkpointer.Wait();
}

int main(int argc, char** argv) {
  setlinebuf(stdout);
  return ddprun::RunWorker(argc, argv, Train);
}
