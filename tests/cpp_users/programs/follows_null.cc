// A null pointer on one rank.
// EXPECT: error: the job failed: worker rank 1 on \S+ was killed by SIGSEGV
// EXPECT: ulimit -c unlimited
#include <ddprun/session.h>
#include <torch/torch.h>

[[gnu::noinline]] void Count(volatile int* samples) { *samples = *samples + 1; }

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "follows_null", .training = {.epochs = 12}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 4});
        const torch::Tensor y = x.sum(1, true);
        torch::nn::Linear net(4, 1);
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          if (session.step() == 3 && session.context().rank() == 1) Count(nullptr);
          session.Backward(torch::mse_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
