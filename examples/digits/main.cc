// Trains a small CNN on handwritten digits: what a program brings beside what all share (Trainer).
//   ddprun --nproc_per_node 2 --no_python digits --data digits.csv.gz --output_dir out
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "ddprun/activation_checkpoint.h"
#include "ddprun/context.h"
#include "ddprun/sync_batch_norm.h"
#include "examples/common/example.h"
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
    // Recomputed, a layer moves its statistics twice: by the root, so that it comes out the same.
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

// Every image a little turned, scaled, slanted and moved, as other hands would have written it.
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

class Digits : public Task {
 public:
  Digits(const TrainingOptions& options, Context& context, const DigitsData& digits)
      : context_(context), net_(options, context) {
    const torch::Tensor images = torch::tensor(digits.pixels).view({-1, 1, kDigitSide, kDigitSide});
    const torch::Tensor labels = torch::tensor(digits.labels);
    const int64_t learned = digits.size() * 4 / 5;
    training_ = {images.slice(0, 0, learned), labels.slice(0, 0, learned)};
    // The last fifth: other people wrote them.
    held_out_ = {images.slice(0, learned), labels.slice(0, learned)};
  }

  std::string name() const override { return "digits"; }
  std::string samples_name() const override { return "digits"; }
  std::shared_ptr<torch::nn::Module> model() const override { return net_.ptr(); }
  int64_t size() const override { return training_.size(); }

  Batch Load(const std::vector<int64_t>& samples, const at::Generator& generator) const override {
    const torch::Tensor rows = torch::tensor(samples);
    return {.inputs = Augment(training_.images.index_select(0, rows), generator),
            .targets = training_.labels.index_select(0, rows)};
  }

  std::string figure_name() const override { return "accuracy"; }

  torch::Tensor Forward(const torch::Tensor& inputs) override { return net_->forward(inputs); }

  torch::Tensor Loss(const torch::Tensor& outputs, const torch::Tensor& targets) override {
    return functional::cross_entropy(outputs, targets,
                                     functional::CrossEntropyFuncOptions().label_smoothing(0.1));
  }

  // Share of the held-out digits that are recognised; every rank looks at its part.
  absl::StatusOr<double> Evaluate() override {
    const torch::Tensor mine =
        torch::arange(context_.rank(), held_out_.size(), context_.world_size(), torch::kLong);
    const torch::Device device = context_.device();
    const torch::Tensor guesses =
        net_->forward(held_out_.images.index_select(0, mine).to(device)).argmax(1);
    const torch::Tensor labels = held_out_.labels.index_select(0, mine).to(device);
    torch::Tensor right = (guesses == labels).sum().to(torch::kDouble).view({1});
    DDPRUN_RETURN_IF_ERROR(context_.AllReduceSum(right));
    return right.item<double>() / static_cast<double>(held_out_.size());
  }

  std::string Describe(double figure) const override {
    return absl::StrFormat("accuracy %.1f%% on %d held-out digits", figure * 100, held_out_.size());
  }

 private:
  Context& context_;
  Net net_;
  Split training_;
  Split held_out_;
};

}  // namespace
}  // namespace ddprun::examples

int main(int argc, char** argv) {
  using ddprun::examples::DefaultDigitsPath;
  using ddprun::examples::Digits;
  using ddprun::examples::LoadDigits;
  using ddprun::examples::Task;
  using ddprun::examples::TrainingOptions;
  return ddprun::examples::RunExample(
      argc, argv,
      {.introduction = "Trains a small CNN on UCI's handwritten digits, on as many workers as "
                       "there are:\n  ddprun --nproc_per_node 2 --no_python digits --epochs 16\n",
       .data_help = "digits.csv.gz; also DDPRUN_DIGITS.",
       .options = {.data = DefaultDigitsPath(), .epochs = 16, .learning_rate = 4e-3},
       .add_options = nullptr,
       .make_task = [](const TrainingOptions& options,
                       ddprun::Context& context) -> absl::StatusOr<std::unique_ptr<Task>> {
         DDPRUN_ASSIGN_OR_RETURN(const ddprun::examples::DigitsData digits,
                                 LoadDigits(options.data));
         return std::make_unique<Digits>(options, context, digits);
       }});
}
