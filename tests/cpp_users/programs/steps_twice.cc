// The optimizer is stepped as in a plain loop, too.
// EXPECT: after step 0 the program has stepped session.optimizer\(\) itself
// EXPECT: call Step\(\) alone
#include <ddprun/session.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "steps_twice", .training = {.epochs = 12}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 4});
        const torch::Tensor y = x.sum(1, true);
        torch::nn::Linear net(4, 1);
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(torch::mse_loss(model(batch.inputs), batch.targets));
          session.optimizer().step();
          session.Step();
        }
      });
}
