// The folder of samples was empty.
// EXPECT: worker of rank [01]: .*Prepare\(\) with a dataset of 0 samples: was the file or folder
#include <ddprun/session.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "no_samples", .training = {.epochs = 12}}, [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({0, 4});
        const torch::Tensor y = x.sum(1, true);
        torch::nn::Linear net(4, 1);
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(torch::mse_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
