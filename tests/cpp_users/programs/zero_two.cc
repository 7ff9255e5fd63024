// Gradients and the optimizer's state shared out over the workers; clipped, and added up twice.
// EXPECT: equal within 1e-4
// BATCH: 6
#include <ddprun/session.h>
#include <torch/torch.h>

namespace nn = torch::nn;

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv,
      {.name = "zero_two",
       .training = {.epochs = 4,
                    .gradient_accumulation_steps = 2,
                    .max_grad_norm = 0.5,
                    .zero_stage = "2"}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 8});
        nn::Sequential net(nn::Linear(8, 32), nn::ReLU(), nn::Linear(32, 32), nn::ReLU(),
                           nn::Linear(32, 8));
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, x.flip(1)));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(nn::functional::mse_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
