// Fine-tunes a small CNN that Python has trained (pretrain.py), on a few digits of other people.
// The body learns slowly, or not at all.
//   python3 examples/finetune/pretrain.py digits.csv.gz digits.safetensors
//   ddprun --nproc_per_node 2 --no_python finetune --weights digits.safetensors
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ddprun/session.h"
#include "ddprun/weights.h"
#include "examples/digits/digits_data.h"

namespace ddprun::examples {
namespace {

using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::Linear;
using torch::nn::ReLU;
namespace functional = torch::nn::functional;

struct FineTuningOptions {
  std::string weights;     // "" = from scratch
  double body_rate = 0.1;  // times the learning rate; 0 = the body is frozen
  int64_t samples = 64;    // to learn from; the others are held out
};

// The names and shapes are pretrain.py's.
struct NetImpl : torch::nn::Module {
  // images: [batch, 1, 8, 8] float. Returns logits [batch, 10].
  torch::Tensor forward(const torch::Tensor& images) { return head(body->forward(images)); }

  torch::nn::Sequential body = register_module(
      "body", torch::nn::Sequential(Conv2d(Conv2dOptions(1, 16, 3).padding(1)), ReLU(),
                                    Conv2d(Conv2dOptions(16, 32, 3).padding(1)), ReLU(),
                                    torch::nn::MaxPool2d(2), torch::nn::Flatten(),
                                    Linear(32 * 16, 64), ReLU()));
  Linear head = register_module("head", Linear(64, 10));
};
TORCH_MODULE(Net);

struct Digits {
  torch::Tensor images;  // [n, 1, 8, 8] float
  torch::Tensor labels;  // [n] int64
};

// The digits that pretrain.py hasn't seen: the last fifth, written by other people.
Digits LoadOtherDigits(const std::string& path) {
  const DigitsData data = OrThrow(LoadDigits(path));
  const int64_t seen = data.size() * 4 / 5;
  const torch::Tensor images = torch::tensor(data.pixels).view({-1, 1, kDigitSide, kDigitSide});
  return {.images = images.slice(0, seen), .labels = torch::tensor(data.labels).slice(0, seen)};
}

// Share of the held-out digits that are recognised; every rank looks at its part.
Evaluation Accuracy(Session& session, SessionModel<NetImpl> net, const Digits& held_out) {
  const int64_t count = held_out.labels.size(0);
  const auto figure = [&session, net, held_out, count]() mutable {
    const torch::Tensor mine = session.OwnRows(count);
    const torch::Device device = session.device();
    const torch::Tensor guesses = net(held_out.images.index_select(0, mine).to(device)).argmax(1);
    const torch::Tensor labels = held_out.labels.index_select(0, mine).to(device);
    return session.SumOverRanks((guesses == labels).sum()) / static_cast<double>(count);
  };
  const auto describe = [count](double accuracy) {
    return absl::StrFormat("accuracy %.1f%% on %d held-out digits", accuracy * 100, count);
  };
  return {.name = "accuracy",
          .figure = figure,
          .describe = describe,
          .better = ddprun::BetterFigure::kHigher};
}

// The group of the body's parameters, which have a rate of their own; empty = the body is frozen.
std::vector<ParameterGroup> BodyGroup(Net& net, double rate) {
  std::vector<torch::Tensor> parameters = net->body->parameters();
  if (rate > 0) return {{.parameters = std::move(parameters), .learning_rate_factor = rate}};
  for (torch::Tensor& parameter : parameters) parameter.requires_grad_(false);
  return {};
}

void Train(Session& session, const FineTuningOptions& options) {
  const Digits digits = LoadOtherDigits(session.options().data);
  const int64_t most = digits.labels.size(0) - 1;
  if (options.samples > most) {
    OrThrow(absl::InvalidArgumentError(
        absl::StrCat("--samples ", options.samples, ": '", session.options().data, "' has ",
                     most + 1, " digits of other people, one must be held out")));
  }
  Net module;
  if (!options.weights.empty()) {
    OrThrow(LoadWeights(*module, options.weights));
  }
  auto net = session.Prepare(module, AdamW(),
                             TensorDataset(digits.images.slice(0, 0, options.samples),
                                           digits.labels.slice(0, 0, options.samples)),
                             BodyGroup(module, options.body_rate));
  session.EvaluateWith(
      Accuracy(session, net,
               {digits.images.slice(0, options.samples), digits.labels.slice(0, options.samples)}));
  for (const Batch& batch : session.Batches()) {
    session.Backward(functional::cross_entropy(net(batch.inputs), batch.targets));
    session.Step();
  }
}

}  // namespace
}  // namespace ddprun::examples

int main(int argc, char** argv) {
  using namespace ddprun::examples;
  FineTuningOptions options;
  return ddprun::RunSession(
      argc, argv,
      {.name = "finetune",
       .training =
           {.data = DefaultDigitsPath(), .epochs = 20, .batch_size = 8, .learning_rate = 1e-3},
       .introduction = "Goes on with a CNN that examples/finetune/pretrain.py has trained, on a "
                       "few digits of other people:\n  ddprun --nproc_per_node 2 --no_python "
                       "finetune --weights digits.safetensors\n",
       .uses = {.data = "digits.csv.gz; also DDPRUN_DIGITS."},
       .add_options =
           [&options](ddprun::OptionTable& table) {
             table.Text("weights", "FILE", &options.weights,
                        "The safetensors file that pretrain.py wrote. By default training begins "
                        "from scratch.");
             table.Real("body_rate", {0, 1e3}, &options.body_rate,
                        "The body's share of the learning rate; 0: the body is frozen.");
             table.Integer("samples", {1, 1'000'000'000}, &options.samples,
                           "Digits to learn from; the others are held out.");
           }},
      [&options](ddprun::Session& session) { Train(session, options); });
}
