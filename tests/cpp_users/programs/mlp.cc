// A perceptron on three classes: what the first program of every user looks like.
// EXPECT: equal
#include <ddprun/session.h>
#include <torch/torch.h>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(hidden(x))); }
  torch::nn::Linear hidden = register_module("hidden", torch::nn::Linear(8, 16));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(16, 3));
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  return ddprun::RunSession(argc, argv, {.name = "mlp"}, [](ddprun::Session& session) {
    const torch::Tensor x = torch::randn({96, 8});
    const torch::Tensor y = x.slice(1, 0, 3).argmax(1);
    auto model = session.Prepare(Net(), ddprun::AdamW(), ddprun::TensorDataset(x, y));
    for (const ddprun::Batch& batch : session.Batches()) {
      session.Backward(torch::nn::functional::cross_entropy(model(batch.inputs), batch.targets));
      session.Step();
    }
  });
}
