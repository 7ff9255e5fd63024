// A label beyond the classes, in the samples of one rank.
// EXPECT: worker of rank [01]: c10::IndexError: Target 3 is out of bounds
// EXPECT: Exception raised from nll_loss_out_frame
#include <ddprun/session.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "label_out_of_range", .training = {.epochs = 12}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 4});
        const torch::Tensor y = torch::randint(0, 3, {96});
        y[50] = 3;
        torch::nn::Linear net(4, 3);
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(torch::cross_entropy_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
