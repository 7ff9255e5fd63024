// Options of the program's own, and a schedule that the command line may change.
// EXPECT: equal
// OPTIONS: --width 24 --lr_schedule constant --activation tanh
#include <ddprun/session.h>
#include <torch/torch.h>

#include <string>

namespace nn = torch::nn;

int main(int argc, char** argv) {
  int64_t width = 8;
  std::string activation = "relu";
  const auto add_options = [&](ddprun::OptionTable& table) {
    table.Integer("width", {1, 1024}, &width, "Neurons of the hidden layer.");
    table.Text("activation", "NAME", &activation, "relu or tanh.");
  };
  return ddprun::RunSession(
      argc, argv,
      {.name = "own_options",
       .training = {.epochs = 4, .batch_size = 12},
       .add_options = add_options},
      [&](ddprun::Session& session) {
        nn::Sequential net(nn::Linear(4, width));
        activation == "tanh" ? net->push_back(nn::Tanh()) : net->push_back(nn::ReLU());
        net->push_back(nn::Linear(width, 1));
        const torch::Tensor x = torch::randn({96, 4});
        auto model =
            session.Prepare(net, ddprun::AdamW(), ddprun::TensorDataset(x, x.prod(1, true)));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(nn::functional::mse_loss(model(batch.inputs), batch.targets));
          if (session.Step() && session.context().is_main() && session.step() % 16 == 0) {
            torch::NoGradGuard no_grad;
            session.metrics().Scalar("weight_norm", session.step(),
                                     net[0]->parameters()[0].norm().item<double>());
          }
        }
      });
}
