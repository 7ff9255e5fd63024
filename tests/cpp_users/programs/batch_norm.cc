// Batch norm over the batches of all workers, so that their number changes nothing.
// EXPECT: equal within 1e-4
// OPTIONS: --sync_batch_norm
#include <ddprun/session.h>
#include <ddprun/sync_batch_norm.h>
#include <torch/torch.h>

namespace nn = torch::nn;

struct NetImpl : nn::Module {
  explicit NetImpl(ddprun::Context& context)
      : norm(register_module("norm", ddprun::nn::SyncBatchNorm(12, context))) {}
  torch::Tensor forward(const torch::Tensor& x) { return out(torch::relu(norm(hidden(x)))); }
  nn::Linear hidden = register_module("hidden", nn::Linear(nn::LinearOptions(6, 12).bias(false)));
  ddprun::nn::SyncBatchNorm norm;
  nn::Linear out = register_module("out", nn::Linear(12, 2));
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv,
      {.name = "batch_norm", .training = {.epochs = 4}, .uses = {.sync_batch_norm = true}},
      [](ddprun::Session& session) {
        const torch::Tensor x = torch::randn({96, 6}) * 5 + 3;
        const torch::Tensor y = (x.sum(1) > 18).to(torch::kLong);
        auto model =
            session.Prepare(Net(session.context()), ddprun::AdamW(), ddprun::TensorDataset(x, y));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(nn::functional::cross_entropy(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
