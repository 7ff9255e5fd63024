// A layer that is left out from the fourth step on: LibTorch says so in Python's words.
// EXPECT: worker of rank [01]: .*parameter 'extra.weight' and 1 more got no gradient
// EXPECT: set find_unused_parameters, else set its requires_grad to false
#include <ddprun/session.h>
#include <torch/torch.h>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, bool early) {
    return early ? base(x) + extra(x) : base(x);
  }
  torch::nn::Linear base = register_module("base", torch::nn::Linear(4, 1));
  torch::nn::Linear extra = register_module("extra", torch::nn::Linear(4, 1));
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  return ddprun::RunSession(argc, argv, {.name = "unused_later", .training = {.epochs = 12}},
                            [](ddprun::Session& session) {
                              const torch::Tensor x = torch::randn({96, 4});
                              auto model = session.Prepare(
                                  Net(), ddprun::AdamW(), ddprun::TensorDataset(x, x.sum(1, true)));
                              for (const ddprun::Batch& batch : session.Batches()) {
                                const torch::Tensor guess = model(batch.inputs, session.step() < 3);
                                session.Backward(torch::mse_loss(guess, batch.targets));
                                session.Step();
                              }
                            });
}
