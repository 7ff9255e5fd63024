// An error of one rank's own code.
// EXPECT: the job failed: worker rank 1 on \S+ exited with code 1: std::runtime_error: 5 columns
#include <ddprun/session.h>
#include <torch/torch.h>

#include <stdexcept>

void Augment(const torch::Tensor& inputs) {
  if (inputs.size(1) != 5) throw std::runtime_error("5 columns were expected");
}

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "throws_on_one_rank", .training = {.epochs = 12}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 4});
        const torch::Tensor y = x.sum(1, true);
        torch::nn::Linear net(4, 1);
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          if (session.step() == 3 && session.context().rank() == 1) Augment(batch.inputs);
          session.Backward(torch::mse_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
