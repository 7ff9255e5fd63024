// The loss is made from a copy that has no graph.
// EXPECT: worker of rank [01]: .*the loss depends on no parameter that is trained: was it
// EXPECT: from a detach\(\)ed tensor or under a torch::NoGradGuard, or are
#include <ddprun/session.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "detached_loss", .training = {.epochs = 12}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 4});
        const torch::Tensor y = x.sum(1, true);
        torch::nn::Linear net(4, 1);
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(torch::mse_loss(model(batch.inputs).detach(), batch.targets));
          session.Step();
        }
      });
}
