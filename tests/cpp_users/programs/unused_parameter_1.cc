// A layer that forward() never uses, with zero_stage 1.
// EXPECT: worker of rank [01]: .*parameter 'forgotten.weight' and 1 more got no gradient
// EXPECT: set find_unused_parameters, else set its requires_grad to false
#include <ddprun/session.h>
#include <torch/torch.h>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return used(x); }
  torch::nn::Linear used = register_module("used", torch::nn::Linear(4, 1));
  torch::nn::Linear forgotten = register_module("forgotten", torch::nn::Linear(4, 1));
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "unused_parameter_1", .training = {.epochs = 12, .zero_stage = "1"}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 4});
        const torch::Tensor y = x.sum(1, true);
        Net net;
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(torch::mse_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
