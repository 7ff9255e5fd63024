// Trains a small CNN on handwritten digits with ddprun's runtime: meet the other workers, wrap the
// model, resume, train, save, measure. Start it with
//   ddprun --nproc_per_node 2 --no_python digits --data digits.csv.gz --checkpoint_dir checkpoints
#include <torch/torch.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/distributed_sampler.h"
#include "ddprun/run_worker.h"
#include "examples/digits/digits_data.h"
#include "examples/digits/digits_options.h"
#include "examples/digits/journal.h"

namespace ddprun::examples {
namespace {

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::ReLU;
namespace functional = torch::nn::functional;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    layers = register_module(
        "layers",
        torch::nn::Sequential(Conv2d(Conv2dOptions(1, 16, 3).padding(1)), BatchNorm2d(16), ReLU(),
                              Conv2d(Conv2dOptions(16, 32, 3).padding(1)), BatchNorm2d(32), ReLU(),
                              torch::nn::MaxPool2d(2), Conv2d(Conv2dOptions(32, 32, 3).padding(1)),
                              BatchNorm2d(32), ReLU(), torch::nn::Flatten(),
                              torch::nn::Linear(32 * 16, 64), ReLU(), torch::nn::Linear(64, 10)));
  }
  // images: [batch, 1, 8, 8] float. Returns logits [batch, 10].
  torch::Tensor forward(const torch::Tensor& images) { return layers->forward(images); }

  torch::nn::Sequential layers{nullptr};
};
TORCH_MODULE(Net);

// Uniform in [-most, most]: [count].
torch::Tensor Jitter(const torch::Tensor& images, double most) {
  return (torch::rand({images.size(0)}, images.options()) * 2 - 1) * most;
}

// Every image a little turned, scaled, slanted and moved, as other hands would have written it.
torch::Tensor Augment(const torch::Tensor& images) {
  const torch::Tensor angle = Jitter(images, 0.2);
  const torch::Tensor scale = 1 + Jitter(images, 0.12);
  const torch::Tensor across = torch::cos(angle) * scale;
  const torch::Tensor along = torch::sin(angle) * scale;
  const torch::Tensor upper =
      torch::stack({across, Jitter(images, 0.15) - along, Jitter(images, 0.3)}, 1);
  const torch::Tensor lower = torch::stack({along, across, Jitter(images, 0.3)}, 1);
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

struct Data {
  Split training;
  Split held_out;  // the last fifth: other people wrote them
};

absl::StatusOr<Data> Load(const std::string& path, torch::Device device) {
  DDPRUN_ASSIGN_OR_RETURN(const DigitsData digits, LoadDigits(path));
  const torch::Tensor images =
      torch::tensor(digits.pixels).view({-1, 1, kDigitSide, kDigitSide}).to(device);
  const torch::Tensor labels = torch::tensor(digits.labels).to(device);
  const int64_t learned = digits.size() * 4 / 5;
  return Data{.training = {images.slice(0, 0, learned), labels.slice(0, 0, learned)},
              .held_out = {images.slice(0, learned), labels.slice(0, learned)}};
}

// Share of the held-out digits that are recognised; every rank looks at its part.
absl::StatusOr<double> Accuracy(Context& context, Net& net, const Split& held_out) {
  const torch::NoGradGuard no_grad;
  net->eval();
  const torch::Tensor mine = torch::arange(context.rank(), held_out.size(), context.world_size(),
                                           held_out.labels.options());
  const torch::Tensor guesses = net->forward(held_out.images.index_select(0, mine)).argmax(1);
  torch::Tensor right =
      (guesses == held_out.labels.index_select(0, mine)).sum().to(torch::kDouble).view({1});
  net->train();
  DDPRUN_RETURN_IF_ERROR(context.AllReduceSum(right));
  return right.item<double>() / static_cast<double>(held_out.size());
}

// Everything that training holds.
class Training {
 public:
  Training(const DigitsOptions& options, Context& context, Data data, Journal journal)
      : options_(options),
        context_(context),
        data_(std::move(data)),
        journal_(std::move(journal)),
        optimizer_(net_->parameters(), torch::optim::AdamOptions(options.learning_rate)),
        sampler_(static_cast<uint64_t>(data_.training.size()), context.rank(), context.world_size(),
                 {.seed = options.seed}) {}

  absl::Status Run();

 private:
  absl::Status Prepare();
  void SetLearningRate();
  absl::Status TrainEpoch();
  absl::Status TrainStep(const torch::Tensor& indices);
  absl::Status SaveNow();

  const DigitsOptions& options_;
  Context& context_;
  const Data data_;
  const Journal journal_;
  Net net_;
  torch::optim::Adam optimizer_;
  DistributedSampler sampler_;
  std::unique_ptr<DistributedDataParallel> ddp_;
  std::optional<Checkpointer> checkpointer_;
  TrainingProgress progress_;
  double loss_ = 0;
  bool stopped_ = false;
};

absl::Status Training::Prepare() {
  net_->to(context_.device());
  DDPRUN_ASSIGN_OR_RETURN(ddp_, DistributedDataParallel::Create(net_.ptr(), context_,
                                                                {.gradient_as_bucket_view = true}));
  if (options_.checkpoint_dir.empty()) return absl::OkStatus();
  checkpointer_.emplace(context_, net_.ptr(), optimizer_,
                        CheckpointerOptions{.directory = options_.checkpoint_dir});
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<TrainingProgress> found, checkpointer_->Restore());
  if (!found.has_value()) return absl::OkStatus();
  progress_ = *found;
  if (context_.is_main()) {
    absl::PrintF("resumed at step %d, epoch %d\n", progress_.step, progress_.epoch);
  }
  return absl::OkStatus();
}

absl::Status Training::Run() {
  DDPRUN_RETURN_IF_ERROR(Prepare());
  while (progress_.epoch < options_.epochs) {
    DDPRUN_RETURN_IF_ERROR(TrainEpoch());
    if (stopped_) return absl::OkStatus();
    ++progress_.epoch;
    progress_.epoch_samples = 0;
    context_.Mark(ProgressPhase::kEvaluation, progress_.step);
    DDPRUN_ASSIGN_OR_RETURN(const double accuracy, Accuracy(context_, net_, data_.held_out));
    if (context_.is_main()) {
      absl::PrintF("epoch %2d/%d  step %4d  loss %.4f  held-out %.1f%%\n", progress_.epoch,
                   options_.epochs, progress_.step, loss_, accuracy * 100);
      std::fflush(stdout);
    }
  }
  DDPRUN_RETURN_IF_ERROR(SaveNow());
  context_.Mark(ProgressPhase::kEvaluation, progress_.step);
  DDPRUN_ASSIGN_OR_RETURN(const double accuracy, Accuracy(context_, net_, data_.held_out));
  if (context_.is_main()) {
    absl::PrintF("final accuracy %.1f%% on %d held-out digits (step %d, world %d, generation %d)\n",
                 accuracy * 100, data_.held_out.size(), progress_.step, context_.world_size(),
                 context_.generation());
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

// Falls linearly to a tenth over the epochs.
void Training::SetLearningRate() {
  const double share = static_cast<double>(progress_.epoch) / static_cast<double>(options_.epochs);
  for (torch::optim::OptimizerParamGroup& group : optimizer_.param_groups()) {
    group.options().set_lr(options_.learning_rate * (1 - 0.9 * share));
  }
}

absl::Status Training::TrainEpoch() {
  SetLearningRate();
  sampler_.SetEpoch(static_cast<uint64_t>(progress_.epoch));
  const torch::Tensor order = torch::tensor(sampler_.Indices()).to(context_.device());
  // What all ranks have seen of this epoch, however many they were then.
  int64_t seen = progress_.epoch_samples / context_.world_size();
  while (seen < order.size(0)) {
    const int64_t end = std::min(seen + options_.batch_size, order.size(0));
    if (context_.StopAt(progress_.step)) {  // a node is about to be taken away
      stopped_ = true;
      return SaveNow();
    }
    DDPRUN_RETURN_IF_ERROR(TrainStep(order.slice(0, seen, end)));
    progress_.epoch_samples += (end - seen) * context_.world_size();
    seen = end;
    if (progress_.step % options_.checkpoint_every == 0) DDPRUN_RETURN_IF_ERROR(SaveNow());
  }
  return absl::OkStatus();
}

absl::Status Training::TrainStep(const torch::Tensor& indices) {
  ddp_->ZeroGrad();
  const torch::Tensor images = Augment(data_.training.images.index_select(0, indices));
  const torch::Tensor logits = ddp_->Forward([&] { return net_->forward(images); });
  const torch::Tensor loss =
      functional::cross_entropy(logits, data_.training.labels.index_select(0, indices),
                                functional::CrossEntropyFuncOptions().label_smoothing(0.1));
  loss.backward();
  optimizer_.step();
  loss_ = loss.item<double>();
  ++progress_.step;
  if (options_.step_delay_ms > 0) absl::SleepFor(absl::Milliseconds(options_.step_delay_ms));
  if (!context_.is_main()) return absl::OkStatus();
  return journal_.Write({.generation = context_.generation(),
                         .rank = context_.rank(),
                         .world = context_.world_size(),
                         .step = progress_.step,
                         .loss = loss_});
}

absl::Status Training::SaveNow() {
  if (!checkpointer_.has_value()) return absl::OkStatus();
  return checkpointer_->Save(progress_);
}

absl::Status Train(const DigitsOptions& options) {
  torch::set_num_threads(options.threads);
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context,
                          Context::Create({.backend = options.backend}));
  DDPRUN_ASSIGN_OR_RETURN(Data data, Load(options.data, context->device()));
  Journal journal;
  if (!options.journal.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(journal, Journal::Open(options.journal));
  }
  if (context->is_main()) {
    absl::PrintF("digits: %d workers over %s, %d digits to learn from, %d a step\n",
                 context->world_size(), context->backend(), data.training.size(),
                 options.batch_size * context->world_size());
    std::fflush(stdout);
  }
  // What is drawn for the images differs by rank; the weights are rank 0's.
  torch::manual_seed(options.seed + context->rank());
  return Training(options, *context, std::move(data), std::move(journal)).Run();
}

}  // namespace
}  // namespace ddprun::examples

int main(int argc, char** argv) {
  ddprun::examples::DigitsOptions options;
  if (const std::optional<int> code = ParseDigitsOptions(argc, argv, &options)) return *code;
  return ddprun::RunWorker(argc, argv, [&options](int /*argc*/, char** /*argv*/) {
    return ddprun::examples::Train(options);
  });
}
