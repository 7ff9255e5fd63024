// Each step uses one path of the model or the other: some parameters get no gradient.
// EXPECT: equal
// OPTIONS: --find_unused_parameters
#include <ddprun/session.h>
#include <torch/torch.h>

namespace nn = torch::nn;

struct ForkImpl : nn::Module {
  torch::Tensor forward(const torch::Tensor& x, bool left) { return out(left ? a(x) : b(x)); }
  nn::Linear a = register_module("a", nn::Linear(6, 6));
  nn::Linear b = register_module("b", nn::Linear(6, 6));
  nn::Linear out = register_module("out", nn::Linear(6, 1));
};
TORCH_MODULE(Fork);

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "two_paths", .training = {.epochs = 4, .learning_rate = 0.02}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 6});
        auto model =
            session.Prepare(Fork(), ddprun::Sgd(), ddprun::TensorDataset(x, x.sum(1, true)));
        for (const ddprun::Batch& batch : session.Batches()) {
          const torch::Tensor guess = model(batch.inputs, session.step() % 2 == 0);
          session.Backward(nn::functional::mse_loss(guess, batch.targets));
          session.Step();
        }
      });
}
