// A word on the command line that no option has.
// OPTIONS: --learning_rat 0.1
// EXPECT: worker of rank [01]: .*unknown option '--learning_rat'; did you mean --learning_rate\?
#include <ddprun/session.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "bad_option", .training = {.epochs = 12}}, [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 4});
        const torch::Tensor y = x.sum(1, true);
        torch::nn::Linear net(4, 1);
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(torch::mse_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
