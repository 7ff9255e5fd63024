#include "ddprun/checkpointer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/torch/checkpoint/checkpoint_exchange.h"
#include "worker/torch/checkpoint/checkpointer_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/zero/zero_state.h"

namespace ddprun {

using worker::CheckpointTensors;
using worker::LoadedCheckpoint;

Checkpointer::Checkpointer(Context& context, std::shared_ptr<torch::nn::Module> module,
                           torch::optim::Optimizer& optimizer, CheckpointerOptions options)
    : implementation_(new Implementation{.context = context,
                                         .module = std::move(module),
                                         .optimizer = optimizer,
                                         .options = std::move(options)}) {
  implementation_->options.keep = std::max<uint32_t>(implementation_->options.keep, 1);
}

Checkpointer::~Checkpointer() = default;

void Checkpointer::Add(std::string name, CheckpointedState& state) {
  DDPRUN_CHECK(!name.empty() && !absl::StrContains(name, '.'),
               absl::StrCat("'", name, "' can't name a state of a checkpoint"));
  implementation_->extras.push_back({std::move(name), state});
}

void Checkpointer::Add(ExponentialMovingAverage& average) { implementation_->average = &average; }

bool Checkpointer::Implementation::WritesShards() const {
  return (options.sharded && zero() != nullptr) ||
         std::any_of(extras.begin(), extras.end(),
                     [](const Extra& extra) { return extra.state.differs_by_rank(); });
}

bool Checkpointer::Implementation::Suffices(const CheckpointTensors& all,
                                            const CheckpointTensors& own) const {
  CheckpointTensors state = worker::TensorsWithPrefix(all, worker::kOptimizerPrefix);
  worker::AddTensors("", worker::TensorsWithPrefix(own, worker::kOptimizerPrefix), state);
  if (zero() != nullptr) return zero()->Covers(state);
  return std::none_of(state.begin(), state.end(), [](const auto& item) {
    const auto name = worker::ZeroStateName::Parse(item.first);
    return name.has_value() && name->begin >= 0;
  });
}

absl::StatusOr<bool> Checkpointer::Implementation::AddShards(const LoadedCheckpoint& loaded,
                                                             CheckpointTensors& tensors) const {
  const size_t shards = loaded.manifest.shards.size();
  if (shards == 0) return true;
  const auto take = [&](uint32_t shard, const CheckpointTensors& taken) {
    CheckpointTensors state = worker::TensorsWithPrefix(taken, worker::kOptimizerPrefix);
    if (zero() != nullptr) state = zero()->OwnPart(state);
    // The shard's bytes needn't stay for the few that are ours.
    for (auto& [name, tensor] : state) tensor = tensor.clone();
    worker::AddTensors(worker::kOptimizerPrefix, state, tensors);
    if (shards != context.world_size() || shard != context.rank()) return;
    for (const Extra& extra : extras) {
      const std::string prefix = worker::ExtraPrefix(extra.name);
      worker::AddTensors(prefix, worker::TensorsWithPrefix(taken, prefix), tensors);
    }
  };
  return worker::TakeShards(
      context, options.directory, {.id = loaded.id, .manifest = loaded.manifest},
      [&](const CheckpointTensors& own) { return Suffices(tensors, own); }, take);
}

absl::StatusOr<TrainingProgress> Checkpointer::Implementation::Apply(
    const CheckpointTensors& tensors) const {
  DDPRUN_ASSIGN_OR_RETURN(const TrainingProgress progress,
                          worker::ApplyTensors(tensors, *module, optimizer));
  if (average != nullptr) {
    DDPRUN_RETURN_IF_ERROR(worker::ApplyAverages(tensors, context.is_main(), *average));
  }
  for (const Extra& extra : extras) {
    CheckpointTensors state = worker::TensorsWithPrefix(tensors, worker::ExtraPrefix(extra.name));
    if (state.empty()) {
      Log(LogLevel::kWarning,
          absl::StrCat("the checkpoint has no '", extra.name, "' for rank ", context.rank(), " of ",
                       context.world_size(), "; it begins anew"));
      continue;
    }
    for (auto& [name, tensor] : state) tensor = tensor.clone();  // it may keep them
    DDPRUN_RETURN_IF_ERROR(extra.state.RestoreState(state));
  }
  DDPRUN_RETURN_IF_ERROR(
      worker::RestoreGenerators(tensors, context.device(), progress.step, context.rank()));
  return progress;
}

// A job whose checkpoints went with a node must not begin anew without anybody's noticing.
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

absl::StatusOr<std::optional<TrainingProgress>> Checkpointer::Restore() {
  Implementation& self = *implementation_;
  DDPRUN_RETURN_IF_ERROR(Wait());
  return worker::CatchExceptions([&]() -> absl::StatusOr<std::optional<TrainingProgress>> {
    worker::CheckpointRange range;
    uint64_t fence = 0;  // the greatest, also of one whose shards may be found again later
    if (!self.options.only.empty()) {
      range.only = worker::ParseCheckpointName(self.options.only);
      if (!range.only.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", self.options.only, "' isn't the name of a checkpoint"));
      }
    }
    while (true) {
      DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedCheckpoint> loaded,
                              worker::AgreeOnNewest(self.context, self.options.directory, range));
      if (loaded == nullptr && range.before.has_value()) {
        return absl::DataLossError(
            absl::StrCat("no checkpoint in '", self.options.directory,
                         "' has all of its shards; delete them to start from the beginning"));
      }
      if (loaded == nullptr) {
        self.NotifyOfNone();
        return std::optional<TrainingProgress>();
      }
      CheckpointTensors tensors = worker::FromTensorFile(loaded->file, loaded->owner);
      DDPRUN_ASSIGN_OR_RETURN(const bool whole, self.AddShards(*loaded, tensors));
      range.before = loaded->id;
      fence = std::max(fence, loaded->id.fence);
      if (!whole) continue;
      const absl::StatusOr<TrainingProgress> progress =
          worker::CatchExceptions([&] { return self.Apply(tensors); });
      DDPRUN_RETURN_IF_ERROR(worker::AgreeOnSuccess(
          self.context, progress.status(),
          absl::StrCat("resume from '", worker::CheckpointName(loaded->id), "'")));
      self.fence = fence + 1;
      return std::optional<TrainingProgress>(*progress);
    }
  });
}

}  // namespace ddprun
