// Parameters shared out, too, of a model that asks for its own ones by name.
// EXPECT: equal within 1e-4
#include <ddprun/session.h>
#include <torch/torch.h>

namespace nn = torch::nn;

struct ResidualImpl : nn::Module {
  explicit ResidualImpl(int64_t blocks) {
    for (int64_t i = 0; i < blocks; ++i) {
      layers->push_back(nn::Sequential(nn::LayerNorm(nn::LayerNormOptions({10})),
                                       nn::Linear(10, 20), nn::GELU(), nn::Linear(20, 10)));
    }
    register_module("layers", layers);
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& layer : *layers) x = x + layer->as<nn::Sequential>()->forward(x);
    return x;
  }
  nn::ModuleList layers;
};
TORCH_MODULE(Residual);

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "zero_three", .training = {.epochs = 4, .zero_stage = "3"}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 10});
        auto model =
            session.Prepare(Residual(3), ddprun::AdamW(), ddprun::TensorDataset(x, x.cumsum(1)));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(nn::functional::smooth_l1_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
