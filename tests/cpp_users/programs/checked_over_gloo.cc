// Collectives that are compared before each, over Gloo, with torch's own comparison beside ours.
// EXPECT: equal within 1e-4
// RUN: %out
// ENVIRONMENT: DDPRUN_CHECK_COLLECTIVES=1 TORCH_DISTRIBUTED_DEBUG=DETAIL DDPRUN_BACKEND=gloo
#include <ddprun/checkpointer.h>
#include <ddprun/context.h>
#include <ddprun/distributed_data_parallel.h>
#include <ddprun/run_worker.h>
#include <ddprun/status_macros.h>
#include <torch/torch.h>

#include <cstdio>

absl::Status Train(int /*argc*/, char** argv) {
  DDPRUN_ASSIGN_OR_RETURN(const auto context, ddprun::Context::Create());
  torch::manual_seed(1);
  torch::nn::Linear net(6, 2);
  const torch::Tensor x = torch::randn({240, 6});
  DDPRUN_ASSIGN_OR_RETURN(const auto ddp,
                          ddprun::DistributedDataParallel::Create(net.ptr(), *context));
  torch::optim::SGD sgd(ddp->parameters(), 0.05);
  ddprun::Checkpointer checkpointer(*context, net.ptr(), sgd, {.directory = argv[1]});
  DDPRUN_ASSIGN_OR_RETURN(const auto resumed, checkpointer.Restore());
  const int64_t mine = 12 / static_cast<int64_t>(context->world_size());
  for (int64_t step = resumed.value_or(ddprun::TrainingProgress()).step + 1; step <= 600; ++step) {
    const int64_t begin = (step - 1) % 20 * 12 + mine * context->rank();
    const torch::Tensor inputs = x.slice(0, begin, begin + mine);
    ddp->ZeroGrad();
    const torch::Tensor guess = ddp->Forward([&] { return net->forward(inputs); });
    torch::mse_loss(guess, inputs.slice(1, 0, 2).abs()).backward();
    sgd.step();
    if (step % 10 == 0) DDPRUN_RETURN_IF_ERROR(checkpointer.Save({.step = step}));
    if (context->is_main())
      std::printf("step %ld of generation %lu\n", step, context->generation());
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  setlinebuf(stdout);
  return ddprun::RunWorker(argc, argv, Train);
}
