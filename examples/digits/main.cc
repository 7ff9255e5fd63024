// Trains a small CNN on handwritten digits: a model, its data and a loss; the rest is the
// Session's.
//   ddprun --nproc_per_node 2 --no_python digits --data digits.csv.gz --output_dir out
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "ddprun/activation_checkpoint.h"
#include "ddprun/context.h"
#include "ddprun/session.h"
#include "ddprun/sync_batch_norm.h"
#include "examples/digits/digits_data.h"

namespace ddprun::examples {
namespace {

using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::ReLU;
namespace functional = torch::nn::functional;

constexpr double kMomentum = 0.1;  // of batch norm's running statistics

struct NetImpl : torch::nn::Module {
  NetImpl(const TrainingOptions& options, Context& context)
      : recompute(options.gradient_checkpointing) {
    AddConvolution(1, 16, options, context);
    AddConvolution(16, 32, options, context);
    layers->push_back(torch::nn::MaxPool2d(2));
    AddConvolution(32, 32, options, context);
    layers->push_back(torch::nn::Flatten());
    layers->push_back(torch::nn::Linear(32 * 16, 64));
    layers->push_back(ReLU());
    layers->push_back(torch::nn::Linear(64, 10));
    register_module("layers", layers);
  }

  void AddConvolution(int64_t from, int64_t to, const TrainingOptions& options, Context& context) {
    // A recomputed layer updates its statistics twice, so each update has the root of the weight.
    const double momentum = recompute ? 1 - std::sqrt(1 - kMomentum) : kMomentum;
    layers->push_back(Conv2d(Conv2dOptions(from, to, 3).padding(1)));
    if (options.sync_batch_norm) {
      layers->push_back(
          nn::SyncBatchNorm(to, context, nn::SyncBatchNormOptions{.momentum = momentum}));
    } else {
      layers->push_back(
          torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(to).momentum(momentum)));
    }
    layers->push_back(ReLU());
  }

  // images: [batch, 1, 8, 8] float. Returns logits [batch, 10].
  torch::Tensor forward(const torch::Tensor& images) {
    if (!recompute || !is_training()) return layers->forward(images);
    torch::Tensor x = images;
    for (const auto& [begin, end] : {std::pair(0, 3), {3, 7}, {7, 10}}) {
      x = CheckpointActivations(
          [self = layers, begin = begin, end = end](const torch::Tensor& in) mutable {
            return Part(self, begin, end, in);
          },
          x);
    }
    return Part(layers, 10, static_cast<int>(layers->size()), x);
  }

  static torch::Tensor Part(torch::nn::Sequential& layers, int begin, int end, torch::Tensor x) {
    for (int i = begin; i < end; ++i) x = (layers->begin() + i)->forward(x);
    return x;
  }

  torch::nn::Sequential layers;
  const bool recompute;
};
TORCH_MODULE(Net);

// Uniform in [-most, most]: [count].
torch::Tensor Jitter(int64_t count, double most, const at::Generator& generator) {
  return (torch::rand({count}, generator) * 2 - 1) * most;
}

// Turns, scales, slants and moves every image a little, as if other people had written it.
torch::Tensor Augment(const torch::Tensor& images, const at::Generator& generator) {
  const auto jitter = [&](double most) { return Jitter(images.size(0), most, generator); };
  const torch::Tensor angle = jitter(0.2);
  const torch::Tensor scale = 1 + jitter(0.12);
  const torch::Tensor across = torch::cos(angle) * scale;
  const torch::Tensor along = torch::sin(angle) * scale;
  const torch::Tensor slant = jitter(0.15);
  const torch::Tensor right = jitter(0.3);
  const torch::Tensor down = jitter(0.3);
  const torch::Tensor upper = torch::stack({across, slant - along, right}, 1);
  const torch::Tensor lower = torch::stack({along, across, down}, 1);
  const torch::Tensor grid =
      functional::affine_grid(torch::stack({upper, lower}, 1), images.sizes(), false);
  return functional::grid_sample(images, grid,
                                 functional::GridSampleFuncOptions().align_corners(false));
}

struct Split {
  torch::Tensor images;  // [n, 1, 8, 8] float
  torch::Tensor labels;  // [n] int64
  int64_t size() const { return labels.size(0); }
};

struct Splits {
  Split training;
  Split held_out;  // the last fifth: other people wrote them
};

Splits Divide(const DigitsData& digits) {
  const torch::Tensor images = torch::tensor(digits.pixels).view({-1, 1, kDigitSide, kDigitSide});
  const torch::Tensor labels = torch::tensor(digits.labels);
  const int64_t learned = digits.size() * 4 / 5;
  return {.training = {images.slice(0, 0, learned), labels.slice(0, 0, learned)},
          .held_out = {images.slice(0, learned), labels.slice(0, learned)}};
}

Dataset TrainingData(const Split& split) {
  const auto load = [split](const std::vector<int64_t>& samples, const at::Generator& generator) {
    const torch::Tensor rows = torch::tensor(samples);
    return Batch{.inputs = Augment(split.images.index_select(0, rows), generator),
                 .targets = split.labels.index_select(0, rows)};
  };
  return {.size = split.size(), .load = load, .samples_name = "digits"};
}

// Share of the held-out digits that are recognised; every rank looks at its part.
Evaluation Accuracy(Session& session, SessionModel<NetImpl> net, const Split& held_out) {
  const auto figure = [&session, net, held_out]() mutable {
    const torch::Tensor mine = session.OwnRows(held_out.size());
    const torch::Tensor guesses =
        net(held_out.images.index_select(0, mine).to(session.device())).argmax(1);
    const torch::Tensor labels = held_out.labels.index_select(0, mine).to(session.device());
    return session.SumOverRanks((guesses == labels).sum()) / static_cast<double>(held_out.size());
  };
  const auto describe = [size = held_out.size()](double accuracy) {
    return absl::StrFormat("accuracy %.1f%% on %d held-out digits", accuracy * 100, size);
  };
  return {.name = "accuracy",
          .figure = figure,
          .describe = describe,
          .better = ddprun::BetterFigure::kHigher};
}

void Train(Session& session) {
  const Splits digits = Divide(OrThrow(LoadDigits(session.options().data)));
  auto net = session.Prepare(Net(session.options(), session.context()), AdamW(),
                             TrainingData(digits.training));
  session.EvaluateWith(Accuracy(session, net, digits.held_out));
  const auto smoothed = functional::CrossEntropyFuncOptions().label_smoothing(0.1);
  for (const Batch& batch : session.Batches()) {
    session.Backward(functional::cross_entropy(net(batch.inputs), batch.targets, smoothed));
    session.Step();
  }
}

}  // namespace
}  // namespace ddprun::examples

int main(int argc, char** argv) {
  using namespace ddprun::examples;
  return ddprun::RunSession(
      argc, argv,
      {.name = "digits",
       .training = {.data = DefaultDigitsPath(), .epochs = 16, .learning_rate = 4e-3},
       .introduction = "Trains a small CNN on UCI's handwritten digits, on as many workers as "
                       "there are:\n  ddprun --nproc_per_node 2 --no_python digits --epochs 16\n",
       .uses = {.data = "digits.csv.gz; also DDPRUN_DIGITS.",
                .gradient_checkpointing = true,
                .sync_batch_norm = true}},
      Train);
}
