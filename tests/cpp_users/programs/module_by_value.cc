// A model that is a plain struct, as in PyTorch's MNIST example, given by value.
// EXPECT: does not compile
// EXPECT: static assertion failed: a Session takes a model by its pointer
// EXPECT: give auto net = std::make_shared<Net>\(\) instead of Net net;
#include <ddprun/session.h>
#include <torch/torch.h>

struct Net : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return line(x); }
  torch::nn::Linear line = register_module("line", torch::nn::Linear(4, 1));
};

int main(int argc, char** argv) {
  return ddprun::RunSession(argc, argv, {.name = "module_by_value"}, [](ddprun::Session& session) {
    const torch::Tensor x = torch::randn({96, 4});
    const torch::Tensor y = x.sum(1, true);
    Net net;
    auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
    session.EvaluateWith(
        {.name = "error", .figure = [&] { return (model(x) - y).abs().mean().item<double>(); }});
    for (const ddprun::Batch& batch : session.Batches()) {
      session.Backward(torch::mse_loss(model(batch.inputs), batch.targets));
      session.Step();
    }
  });
}
