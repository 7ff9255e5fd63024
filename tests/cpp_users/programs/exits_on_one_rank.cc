// One rank has seen enough, and exits with status 0.
// EXPECT: rank 1 called exit\(\), with status 0, while rank 0 goes on: all ranks make the
// EXPECT: advice .*: The cause is a rank that had ended before, with status 0
#include <ddprun/session.h>
#include <torch/torch.h>

#include <cstdlib>

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "exits_on_one_rank", .training = {.epochs = 12}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 4});
        const torch::Tensor y = x.sum(1, true);
        torch::nn::Linear net(4, 1);
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          if (session.step() == 3 && session.context().rank() == 1) std::exit(0);
          session.Backward(torch::mse_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
