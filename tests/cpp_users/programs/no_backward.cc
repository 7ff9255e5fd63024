// Backward() was forgotten: nothing would be learned.
// EXPECT: worker of rank [01]: .*Step\(\) before Backward\(\): this batch has no gradients
#include <ddprun/session.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  return ddprun::RunSession(argc, argv, {.name = "no_backward", .training = {.epochs = 12}},
                            [](ddprun::Session& session) {
                              const torch::Tensor x = torch::randn({96, 4});
                              const torch::Tensor y = x.sum(1, true);
                              torch::nn::Linear net(4, 1);
                              auto model = session.Prepare(net, ddprun::AdamW(),
                                                           ddprun::TensorDataset(x, y));
                              for (const ddprun::Batch& batch : session.Batches()) {
                                torch::mse_loss(model(batch.inputs), batch.targets).backward();
                                session.Step();
                              }
                            });
}
