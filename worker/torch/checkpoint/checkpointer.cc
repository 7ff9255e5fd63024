#include "ddprun/checkpointer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/torch/checkpoint/checkpoint_exchange.h"
#include "worker/torch/checkpoint/checkpoint_writer.h"
#include "worker/torch/checkpoint/checkpointed_training.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun {

using worker::CheckpointTensors;
using worker::LoadedCheckpoint;

// Resumes; the CheckpointWriter saves.
struct Checkpointer::Implementation {
  Implementation(Context& of, std::shared_ptr<torch::nn::Module> module,
                 torch::optim::Optimizer& optimizer, CheckpointerOptions from)
      : context(of),
        options(std::move(from)),
        training(context, std::move(module), optimizer, options.sharded),
        writer(context, training, options.directory, std::max<uint32_t>(options.keep, 1),
               options.notes) {}

  absl::StatusOr<std::optional<TrainingProgress>> Restore();
  // Restores a checkpoint, on all ranks.
  absl::StatusOr<TrainingProgress> Apply(const LoadedCheckpoint& loaded,
                                         const CheckpointTensors& tensors) const;
  // Whether no run can go on from this checkpoint, by what any rank sees in its part; that rank
  // prints why. A collective.
  absl::StatusOr<bool> IsBad(const LoadedCheckpoint& loaded,
                             const CheckpointTensors& tensors) const;
  absl::StatusOr<worker::CheckpointRange> Range() const;
  // Adds the shards' tensors. Returns whether all shards were found.
  absl::StatusOr<bool> AddShards(const LoadedCheckpoint& loaded, CheckpointTensors& tensors) const;
  void NotifyOfNone() const;

  Context& context;
  const CheckpointerOptions options;
  worker::CheckpointedTraining training;
  worker::CheckpointWriter writer;
};

Checkpointer::Checkpointer(Context& context, std::shared_ptr<torch::nn::Module> module,
                           torch::optim::Optimizer& optimizer, CheckpointerOptions options)
    : implementation_(std::make_unique<Implementation>(context, std::move(module), optimizer,
                                                       std::move(options))) {}

Checkpointer::~Checkpointer() = default;

void Checkpointer::Add(std::string name, CheckpointedState& state) {
  implementation_->training.Add(std::move(name), state);
}

void Checkpointer::Add(ExponentialMovingAverage& average) {
  implementation_->training.Add(average);
}

absl::StatusOr<bool> Checkpointer::Implementation::AddShards(const LoadedCheckpoint& loaded,
                                                             CheckpointTensors& tensors) const {
  const size_t shards = loaded.manifest.shards.size();
  if (shards == 0) return true;
  return worker::TakeShards(
      context, options.directory, {.id = loaded.id, .manifest = loaded.manifest},
      [&](const CheckpointTensors& own) { return training.Suffices(tensors, own); },
      [&](uint32_t shard, const CheckpointTensors& stored) {
        training.TakeOfShard(shard, shards, stored, tensors);
      });
}

// A job that has lost its checkpoints with a node must not begin anew unnoticed.
void Checkpointer::Implementation::NotifyOfNone() const {
  if (!context.is_main() || !options.tell_of_none) return;
  std::string text = absl::StrCat("no rank finds a checkpoint (checkpoint-*.safetensors in '",
                                  options.directory, "'): training begins at step 0");
  if (context.generation() > 1 || context.restart_count() > 0) {
    absl::StrAppend(&text, ", in generation ", context.generation(),
                    ". If earlier ones saved some, they are on a node that isn't there any more: "
                    "use a directory that all nodes share");
  }
  Notify(text);
}

absl::StatusOr<worker::CheckpointRange> Checkpointer::Implementation::Range() const {
  worker::CheckpointRange range;
  if (options.only.empty()) return range;
  range.only = worker::ParseCheckpointName(options.only);
  if (range.only.has_value()) return range;
  return absl::InvalidArgumentError(
      absl::StrCat("'", options.only, "' isn't the name of a checkpoint"));
}

absl::StatusOr<bool> Checkpointer::Implementation::IsBad(const LoadedCheckpoint& loaded,
                                                         const CheckpointTensors& tensors) const {
  const std::string bad = training.watch().FindBad(tensors);
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> all,
                          worker::GatherNumber(context, bad.empty() ? 0 : 1));
  const auto first = std::find(all.begin(), all.end(), 1) - all.begin();
  if (first == context.rank()) {
    Log(LogLevel::kWarning,
        absl::StrCat("checkpoint '", options.directory, "/", worker::CheckpointName(loaded.id),
                     "': ", bad, "; trying the one before it"));
  }
  return first < static_cast<int64_t>(all.size());
}

// A checkpoint with a NaN (earlier versions published them; see CheckpointWriter::WhyWithheld) is
// passed over like a damaged one. If there is no other, it is taken all the same: only the program
// knows whether training can go on with it.
absl::StatusOr<std::optional<TrainingProgress>> Checkpointer::Implementation::Restore() {
  DDPRUN_ASSIGN_OR_RETURN(worker::CheckpointRange range, Range());
  uint64_t fence = 0;  // the greatest, also of one whose shards may be found again later
  std::optional<worker::CheckpointId> bad;  // the newest of those that were passed over for a NaN
  bool takes_bad = false;
  while (true) {
    absl::StatusOr<std::unique_ptr<LoadedCheckpoint>> newest =
        worker::AgreeOnNewest(context, options.directory, range);
    const bool none_is_left = newest.ok() ? *newest == nullptr : absl::IsDataLoss(newest.status());
    if (none_is_left && bad.has_value() && !takes_bad) {
      takes_bad = true;
      if (context.is_main()) {
        Log(LogLevel::kWarning, absl::StrCat("there is no better checkpoint in '",
                                             options.directory, "': resuming from that one"));
      }
      range = {.only = bad};
      continue;
    }
    DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedCheckpoint> loaded, std::move(newest));
    if (loaded == nullptr && range.before.has_value()) {
      return absl::DataLossError(
          absl::StrCat("no checkpoint in '", options.directory,
                       "' has all of its shards; delete them to start from the beginning"));
    }
    if (loaded == nullptr) {
      NotifyOfNone();
      return std::optional<TrainingProgress>();
    }
    CheckpointTensors tensors = worker::FromTensorFile(loaded->file, loaded->owner);
    DDPRUN_ASSIGN_OR_RETURN(const bool whole, AddShards(*loaded, tensors));
    range.before = loaded->id;
    fence = std::max(fence, loaded->id.fence);
    if (!whole) continue;
    if (!takes_bad) {
      DDPRUN_ASSIGN_OR_RETURN(const bool is_bad, IsBad(*loaded, tensors));
      if (is_bad && !bad.has_value()) bad = loaded->id;
      if (is_bad) continue;
    }
    DDPRUN_ASSIGN_OR_RETURN(const TrainingProgress progress, Apply(*loaded, tensors));
    if (takes_bad) training.Accept(tensors);
    writer.BeginAfter(fence);
    return std::optional<TrainingProgress>(progress);
  }
}

absl::StatusOr<TrainingProgress> Checkpointer::Implementation::Apply(
    const LoadedCheckpoint& loaded, const CheckpointTensors& tensors) const {
  absl::StatusOr<TrainingProgress> progress =
      worker::CatchExceptions([&] { return training.Apply(tensors); });
  DDPRUN_RETURN_IF_ERROR(worker::AgreeOnSuccess(
      context, progress.status(),
      absl::StrCat("resume from '", worker::CheckpointName(loaded.id), "'")));
  return progress;
}

absl::StatusOr<std::optional<TrainingProgress>> Checkpointer::Restore() {
  DDPRUN_RETURN_IF_ERROR(Wait());
  return worker::CatchExceptions([this] { return implementation_->Restore(); });
}

absl::Status Checkpointer::Claim() {
  return worker::CatchExceptions([&] { return implementation_->writer.Claim(); });
}

absl::Status Checkpointer::Save(const TrainingProgress& progress, std::optional<double> score) {
  return worker::CatchExceptions([&] { return implementation_->writer.Save(progress, score); });
}

absl::Status Checkpointer::SaveAsync(const TrainingProgress& progress,
                                     std::optional<double> score) {
  return worker::CatchExceptions(
      [&] { return implementation_->writer.SaveAsync(progress, score); });
}

absl::StatusOr<bool> Checkpointer::IsBest(double score) {
  return worker::CatchExceptions([&] { return implementation_->writer.IsBest(score); });
}

absl::Status Checkpointer::Wait() {
  return worker::CatchExceptions([this] { return implementation_->writer.Wait(); });
}

void Checkpointer::LeaveGeneration() { implementation_->writer.LeaveGeneration(); }

uint64_t Checkpointer::fence() const { return implementation_->writer.fence(); }

void Checkpointer::GoOnAfter(uint64_t fence) { implementation_->writer.GoOnAfter(fence); }

}  // namespace ddprun
