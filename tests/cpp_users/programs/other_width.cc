// One rank makes a wider model than the others.
// EXPECT: 'parameter 0.weight Float \[8, 4\]' on rank 0 and
// EXPECT: 'parameter 0.weight Float \[9, 4\]' on rank 1
// EXPECT: build the same module, with the same options, on every rank
#include <ddprun/session.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "other_width", .training = {.epochs = 12}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 4});
        const torch::Tensor y = x.sum(1, true);
        const int64_t width = session.context().rank() == 1 ? 9 : 8;
        torch::nn::Sequential net(torch::nn::Linear(4, width), torch::nn::Linear(width, 1));
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(torch::mse_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
