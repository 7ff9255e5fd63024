// A sample's loss is infinite, and NaN later.
// EXPECT: worker of rank [01]: .*the loss is -?(inf|nan); all parameters are finite: look
// EXPECT: at the batch and at the loss function
#include <ddprun/session.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  return ddprun::RunSession(argc, argv, {.name = "logarithm_of_zero", .training = {.epochs = 12}},
                            [](ddprun::Session& session) {
                              const torch::Tensor x = torch::randn({96, 4});
                              const torch::Tensor y = x.sum(1, true);
                              torch::nn::Linear net(4, 1);
                              auto model = session.Prepare(net, ddprun::AdamW(),
                                                           ddprun::TensorDataset(x, y));
                              for (const ddprun::Batch& batch : session.Batches()) {
                                session.Backward(torch::log(model(batch.inputs).relu()).mean());
                                session.Step();
                              }
                            });
}
