// A GRU: LibTorch's forward() returns a tuple, and the program's own takes the output from it.
// EXPECT: equal within 1e-4
#include <ddprun/session.h>
#include <torch/torch.h>

namespace nn = torch::nn;

struct CounterImpl : nn::Module {
  torch::Tensor forward(const torch::Tensor& series) {
    return out(std::get<0>(gru(series)).select(1, -1)).squeeze(1);
  }
  nn::GRU gru = register_module("gru", nn::GRU(nn::GRUOptions(2, 12).batch_first(true)));
  nn::Linear out = register_module("out", nn::Linear(12, 1));
};
TORCH_MODULE(Counter);

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv,
      {.name = "gru", .training = {.epochs = 4, .learning_rate = 0.01, .max_grad_norm = 1}},
      [](ddprun::Session& session) {
        const torch::Tensor series = torch::randn({96, 10, 2});
        const torch::Tensor sums = series.select(2, 0).sum(1) / 3;
        auto model =
            session.Prepare(Counter(), ddprun::AdamW(), ddprun::TensorDataset(series, sums));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(nn::functional::mse_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
