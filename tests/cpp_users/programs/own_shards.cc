// Each rank reads a shard of its own: the data sets differ in size.
// EXPECT: '90 samples' on rank 0 and '93 samples' on rank 1; start every rank with the same
// EXPECT: all of the data: a Session deals the samples out
#include <ddprun/session.h>
#include <torch/torch.h>

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "own_shards", .training = {.epochs = 12}}, [](ddprun::Session& session) {
        const torch::Tensor x =
            torch::randn({90 + 3 * static_cast<int64_t>(session.context().rank()), 4});
        const torch::Tensor y = x.sum(1, true);
        torch::nn::Linear net(4, 1);
        auto model = session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(torch::mse_loss(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
