// One rank waits for a thread that never answers.
// LAUNCH: --hang_timeout 3
// SECONDS: 12
// EXPECT: worker rank 1 on \S+ hung: no progress in train, step 3, for
// EXPECT: hasn't come to collective \d+, for which rank 0 has waited
#include <ddprun/session.h>
#include <torch/torch.h>

#include <future>

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "waits_for_ever", .training = {.epochs = 12}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 4});
        const torch::Tensor y = x.sum(1, true);
        torch::nn::Linear net(4, 1);
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          if (session.step() == 3 && session.context().rank() == 1)
            std::promise<void>().get_future().wait();
          session.Backward(torch::mse_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
