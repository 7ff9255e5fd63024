// Each rank has its own number of batches; the check of collectives says so at the end.
// RUN: %out
// EXPECT: rank 0 is at forward pass 19; rank 1 is at the end of the program
// EXPECT: give all ranks as many batches, or train inside DistributedDataParallel::Join
#include <ddprun/context.h>
#include <ddprun/distributed_data_parallel.h>
#include <ddprun/run_worker.h>
#include <ddprun/status_macros.h>
#include <torch/torch.h>

absl::Status Train(int /*argc*/, char** /*argv*/) {
  DDPRUN_ASSIGN_OR_RETURN(const auto context, ddprun::Context::Create({.check_collectives = true}));
  torch::nn::Linear net(6, 1);
  DDPRUN_ASSIGN_OR_RETURN(const auto ddp,
                          ddprun::DistributedDataParallel::Create(net.ptr(), *context));
  torch::optim::SGD sgd(ddp->parameters(), 0.01);
  for (int64_t step = 0; step < 20 - 2 * context->rank(); ++step) {
    const torch::Tensor inputs = torch::randn({4, 6});
    ddp->ZeroGrad();
    ddp->Forward([&] { return net->forward(inputs); }).pow(2).mean().backward();
    sgd.step();
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) { return ddprun::RunWorker(argc, argv, Train); }
