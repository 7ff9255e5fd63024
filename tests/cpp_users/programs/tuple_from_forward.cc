// A model whose forward() returns a tuple, as LibTorch's GRU does.
// EXPECT: does not compile
// EXPECT: static assertion failed: the model's forward\(\) must return a torch::Tensor or a
// EXPECT: of a tuple, as of torch::nn::GRU and LSTM, put what the loss needs into one
#include <ddprun/session.h>
#include <torch/torch.h>

#include <tuple>

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "tuple_from_forward", .training = {.epochs = 12}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 4});
        const torch::Tensor y = x.sum(1, true);
        torch::nn::GRU net(4, 1);
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(torch::mse_loss(std::get<0>(model(batch.inputs)), batch.targets));
          session.Step();
        }
      });
}
