// Convolutions in a Sequential, SGD with momentum, a figure over held-out samples.
// EXPECT: equal
#include <ddprun/session.h>
#include <torch/torch.h>

namespace nn = torch::nn;

torch::Tensor Images(int64_t count, const torch::Tensor& labels) {
  return torch::randn({count, 1, 8, 8}) + labels.view({-1, 1, 1, 1});
}

void Train(ddprun::Session& session) {
  const torch::Tensor labels = torch::randint(0, 4, {120});
  const torch::Tensor images = Images(120, labels);
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1)), nn::ReLU(),
                     nn::MaxPool2d(2), nn::Flatten(), nn::Linear(64, 4));
  auto model =
      session.Prepare(net, ddprun::Sgd{.momentum = 0.9},
                      ddprun::TensorDataset(images.slice(0, 0, 96), labels.slice(0, 0, 96)));
  const auto accuracy = [&session, model, images, labels] {
    const torch::Tensor mine = session.OwnRows(24) + 96;
    const torch::Tensor guesses = model(images.index_select(0, mine)).argmax(1);
    return session.SumOverRanks((guesses == labels.index_select(0, mine)).sum()) / 24;
  };
  session.EvaluateWith({.name = "accuracy", .figure = accuracy});
  for (const ddprun::Batch& batch : session.Batches()) {
    session.Backward(nn::functional::cross_entropy(model(batch.inputs), batch.targets));
    session.Step();
  }
}

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "convnet", .training = {.epochs = 5, .learning_rate = 0.01}}, Train);
}
