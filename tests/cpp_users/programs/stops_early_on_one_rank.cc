// An early stop that looks at the rank's own loss.
// EXPECT: rank 1 left the loop after step 4, with status 0, while rank 0 goes on
// EXPECT: let them decide together
#include <ddprun/session.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "stops_early_on_one_rank", .training = {.epochs = 12}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 4});
        const torch::Tensor y = x.sum(1, true);
        torch::nn::Linear net(4, 1);
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          const torch::Tensor loss = torch::mse_loss(model(batch.inputs), batch.targets);
          session.Backward(loss);
          session.Step();
          if (session.step() == 4 && session.context().rank() == 1) break;
        }
      });
}
