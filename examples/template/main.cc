// A training program to begin from: replace the model, the samples, the loss and the figure by your
// own. `train --help` lists the options that it already has.
#include <ddprun/session.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstdint>

namespace {

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t width)
      : hidden(register_module("hidden", torch::nn::Linear(2, width))),
        out(register_module("out", torch::nn::Linear(width, 2))) {}
  torch::Tensor forward(const torch::Tensor& points) { return out(torch::tanh(hidden(points))); }

  torch::nn::Linear hidden, out;
};
TORCH_MODULE(Net);

// Points of a plane, and whether each is in the unit circle. Every rank makes all of them: the
// session deals them out.
struct Points {
  explicit Points(int64_t count)
      : inputs(torch::rand({count, 2}) * 3 - 1.5),
        targets((inputs.pow(2).sum(1) < 1).to(torch::kLong)) {}
  torch::Tensor inputs, targets;
};

void Train(ddprun::Session& session, int64_t width) {
  const Points learned(2000);
  const Points held_out(500);
  auto model = session.Prepare(Net(width), ddprun::AdamW(),
                               ddprun::TensorDataset(learned.inputs, learned.targets));
  const auto accuracy = [&session, model, held_out] {
    const torch::Tensor mine = session.OwnRows(500);  // each rank looks at its part
    const torch::Tensor guesses =
        model(held_out.inputs.index_select(0, mine).to(session.device())).argmax(1);
    const torch::Tensor targets = held_out.targets.index_select(0, mine).to(session.device());
    return session.SumOverRanks((guesses == targets).sum()) / 500;
  };
  session.EvaluateWith(
      {.name = "accuracy", .figure = accuracy, .better = ddprun::BetterFigure::kHigher});
  for (const ddprun::Batch& batch : session.Batches()) {
    session.Backward(torch::nn::functional::cross_entropy(model(batch.inputs), batch.targets));
    session.Step();
  }
}

}  // namespace

int main(int argc, char** argv) {
  int64_t width = 32;
  return ddprun::RunSession(
      argc, argv,
      {.name = "train",
       .training = {.epochs = 10, .batch_size = 20, .learning_rate = 0.01},
       .introduction = "Learns which points of a plane are in the unit circle.\n",
       .add_options =
           [&width](ddprun::OptionTable& table) {
             table.Integer("width", {1, 4096}, &width, "Neurons of the hidden layer.");
           }},
      [&width](ddprun::Session& session) { Train(session, width); });
}
