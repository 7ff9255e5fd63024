// The loss is one number for each sample.
// EXPECT: worker of rank [01]: .*Backward\(\) takes a loss of one number, this one is
// EXPECT: \[6, 1\]: call mean\(\)
#include <ddprun/session.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  return ddprun::RunSession(argc, argv, {.name = "loss_of_each_sample", .training = {.epochs = 12}},
                            [](ddprun::Session& session) {
                              const torch::Tensor x = torch::randn({96, 4});
                              const torch::Tensor y = x.sum(1, true);
                              torch::nn::Linear net(4, 1);
                              auto model = session.Prepare(net, ddprun::AdamW(),
                                                           ddprun::TensorDataset(x, y));
                              for (const ddprun::Batch& batch : session.Batches()) {
                                session.Backward((model(batch.inputs) - batch.targets).pow(2));
                                session.Step();
                              }
                            });
}
