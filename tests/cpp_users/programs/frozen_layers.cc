// A frozen trunk, and a head that learns.
// EXPECT: equal
#include <ddprun/session.h>
#include <torch/torch.h>

namespace nn = torch::nn;

struct TunedImpl : nn::Module {
  TunedImpl() {
    for (torch::Tensor& parameter : trunk->parameters()) parameter.requires_grad_(false);
  }
  torch::Tensor forward(const torch::Tensor& x) { return head(trunk->forward(x)); }
  nn::Sequential trunk =
      register_module("trunk", nn::Sequential(nn::Linear(5, 20), nn::Tanh(), nn::Linear(20, 10)));
  nn::Linear head = register_module("head", nn::Linear(10, 1));
};
TORCH_MODULE(Tuned);

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "frozen_layers", .training = {.epochs = 4, .learning_rate = 0.02}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 5});
        auto model = session.Prepare(Tuned(), ddprun::Sgd(),
                                     ddprun::TensorDataset(x, x.pow(2).sum(1, true)));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(nn::functional::huber_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
