// One model with two outputs and three losses, added up.
// EXPECT: equal
#include <ddprun/session.h>
#include <torch/torch.h>

#include <vector>

namespace nn = torch::nn;

struct TwoHeadsImpl : nn::Module {
  std::vector<torch::Tensor> forward(const torch::Tensor& x) {
    const torch::Tensor code = torch::tanh(encoder(x));
    return {classes(code), decoder(code), code};
  }
  nn::Linear encoder = register_module("encoder", nn::Linear(6, 4));
  nn::Linear decoder = register_module("decoder", nn::Linear(4, 6));
  nn::Linear classes = register_module("classes", nn::Linear(4, 2));
};
TORCH_MODULE(TwoHeads);

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "several_losses", .training = {.epochs = 4}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 6});
        const torch::Tensor y = (x.select(1, 0) > 0).to(torch::kLong);
        auto model = session.Prepare(TwoHeads(), ddprun::AdamW{.betas = {0.9, 0.95}},
                                     ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          const std::vector<torch::Tensor> out = model(batch.inputs);
          const torch::Tensor guess = nn::functional::cross_entropy(out[0], batch.targets);
          const torch::Tensor again = nn::functional::mse_loss(out[1], batch.inputs);
          session.Backward(guess + 0.5 * again + 0.01 * out[2].abs().mean());
          session.Step();
        }
      });
}
