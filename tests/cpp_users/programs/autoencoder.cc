// Samples without targets, of a number that no batch divides.
// EXPECT: equal
#include <ddprun/session.h>
#include <torch/torch.h>

namespace nn = torch::nn;

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "autoencoder", .training = {.epochs = 3, .learning_rate = 3e-3}},
      [](ddprun::Session& session) {
        const torch::Tensor images = torch::rand({101, 1, 8, 8});
        nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).stride(2).padding(1)), nn::ReLU(),
                           nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 1, 2).stride(2)),
                           nn::Sigmoid());
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(images, {}));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(nn::functional::binary_cross_entropy(model(batch.inputs), batch.inputs));
          session.Step();
        }
      });
}
