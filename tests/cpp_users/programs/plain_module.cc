// Calls the module itself instead of the prepared one: its gradients wouldn't be averaged.
// EXPECT: worker of rank [01]: .*Backward\(\) of a loss that the session's model had no
// EXPECT: call what Prepare\(\) returned instead of the module
#include <ddprun/session.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  return ddprun::RunSession(argc, argv, {.name = "plain_module", .training = {.epochs = 12}},
                            [](ddprun::Session& session) {
                              const torch::Tensor x = torch::randn({96, 4});
                              const torch::Tensor y = x.sum(1, true);
                              torch::nn::Linear net(4, 1);
                              session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
                              for (const ddprun::Batch& batch : session.Batches()) {
                                session.Backward(torch::mse_loss(net(batch.inputs), batch.targets));
                                session.Step();
                              }
                            });
}
