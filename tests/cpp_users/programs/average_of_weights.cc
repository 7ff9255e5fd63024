// Evaluates the average of the weights, and keeps the best of them.
// EXPECT: equal
#include <ddprun/session.h>
#include <torch/torch.h>

namespace nn = torch::nn;

void Train(ddprun::Session& session) {
  const torch::Tensor x = torch::randn({120, 4});
  const torch::Tensor y = torch::sin(x).sum(1, true);
  nn::Sequential net(nn::Linear(4, 16), nn::SiLU(), nn::Linear(16, 1));
  auto model = session.Prepare(net, ddprun::AdamW(),
                               ddprun::TensorDataset(x.slice(0, 0, 96), y.slice(0, 0, 96)));
  const auto error = [&session, model, x, y] {
    const torch::Tensor mine = session.OwnRows(24) + 96;
    const torch::Tensor misses = model(x.index_select(0, mine)) - y.index_select(0, mine);
    return session.SumOverRanks(misses.pow(2).sum()) / 24;
  };
  session.EvaluateWith({.name = "error", .figure = error, .better = ddprun::BetterFigure::kLower});
  for (const ddprun::Batch& batch : session.Batches()) {
    session.Backward(nn::functional::mse_loss(model(batch.inputs), batch.targets));
    session.Step();
  }
}

int main(int argc, char** argv) {
  return ddprun::RunSession(argc, argv,
                            {.name = "average_of_weights",
                             .training = {.epochs = 5, .lr_schedule = "cosine", .ema_decay = 0.9}},
                            Train);
}
