// Parameters in bf16, products in bf16: equal up to the rounding of eight bits.
// EXPECT: equal within 0.05
#include <ddprun/session.h>
#include <torch/torch.h>

namespace nn = torch::nn;

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "half_precision", .training = {.epochs = 4, .zero_stage = "1"}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 8}).to(torch::kBFloat16);
        nn::Sequential net(nn::Linear(8, 32), nn::ReLU(), nn::Linear(32, 4));
        net->to(torch::kBFloat16);
        auto model = session.Prepare(net, ddprun::AdamW(),
                                     ddprun::TensorDataset(x, x.slice(1, 0, 4).argmax(1)));
        for (const ddprun::Batch& batch : session.Batches()) {
          const torch::Tensor logits = model(batch.inputs).to(torch::kFloat);
          session.Backward(nn::functional::cross_entropy(logits, batch.targets));
          session.Step();
        }
      });
}
