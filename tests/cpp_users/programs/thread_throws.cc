// A thread of one rank, which nobody joins, throws.
// EXPECT: error: the job failed: worker rank 1 on \S+ was killed by SIGABRT: std::runtime_error
// EXPECT: (?m)^ddprun: worker of rank 1: std::runtime_error: the file server is gone$
#include <ddprun/session.h>
#include <torch/torch.h>

#include <stdexcept>
#include <thread>

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "thread_throws", .training = {.epochs = 12}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 4});
        const torch::Tensor y = x.sum(1, true);
        torch::nn::Linear net(4, 1);
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          if (session.step() == 3 && session.context().rank() == 1) {
            std::thread([] { throw std::runtime_error("the file server is gone"); }).detach();
          }
          session.Backward(torch::mse_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
