// Samples that are computed when they are asked for, on two threads of each worker.
// EXPECT: equal
// OPTIONS: --num_workers 2
#include <ddprun/session.h>
#include <torch/torch.h>

#include <vector>

ddprun::Batch Load(const std::vector<int64_t>& samples, const at::Generator& /*random*/) {
  const torch::Tensor phase = torch::tensor(samples).to(torch::kFloat).unsqueeze(1) / 7;
  const torch::Tensor wave = torch::sin(phase + torch::arange(16) / 3.0);
  return {.inputs = wave, .targets = torch::cos(phase)};
}

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "own_dataset", .training = {.epochs = 4, .learning_rate = 0.05}},
      [](ddprun::Session& session) {
        torch::nn::Sequential net(torch::nn::Linear(16, 8), torch::nn::GELU(),
                                  torch::nn::Linear(8, 1));
        const ddprun::Dataset waves = {.size = 96, .load = Load, .samples_name = "waves"};
        auto model = session.Prepare(net, ddprun::Sgd{.momentum = 0.9, .nesterov = true}, waves);
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward((model(batch.inputs) - batch.targets).abs().mean());
          session.Step();
        }
      });
}
