// ZeRO of stage 1 by hand, without DistributedDataParallel: nobody averages the gradients.
// RUN: %out
// EXPECT: nobody averages the gradients: that of 'weight' differs between the ranks
// EXPECT: Make one \(DistributedDataParallel::Create\) and run the forward pass through
#include <ddprun/context.h>
#include <ddprun/run_worker.h>
#include <ddprun/status_macros.h>
#include <ddprun/zero_optimizer.h>
#include <torch/torch.h>

absl::Status Train(int /*argc*/, char** /*argv*/) {
  DDPRUN_ASSIGN_OR_RETURN(const auto context, ddprun::Context::Create());
  torch::nn::Linear net(6, 1);
  DDPRUN_ASSIGN_OR_RETURN(
      const auto zero,
      ddprun::ZeroOptimizer::Create(net.ptr(), *context, torch::optim::AdamWOptions(0.01)));
  torch::manual_seed(context->rank());
  for (int64_t step = 1; step <= 100; ++step) {
    const torch::Tensor inputs = torch::randn({4, 6});
    zero->ZeroGrad();
    torch::mse_loss(net(inputs), inputs.sum(1, true)).backward();
    DDPRUN_RETURN_IF_ERROR(zero->Step());
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) { return ddprun::RunWorker(argc, argv, Train); }
