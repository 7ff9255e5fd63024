#include "ddprun/checkpointer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "ddprun/exponential_moving_average.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/checkpoint/atomic_file.h"
#include "worker/torch/checkpoint/background_write.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/checkpoint/checkpoint_directory.h"
#include "worker/torch/checkpoint/checkpoint_exchange.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/optim/optimizer_state.h"
#include "worker/torch/zero/zero_state.h"

namespace ddprun {

using worker::CheckpointId;
using worker::CheckpointTensors;
using worker::LoadedCheckpoint;
using worker::Manifest;
using worker::TensorFile;

struct Checkpointer::Implementation {
  struct Extra {
    std::string name;
    CheckpointedState& state;
  };

  // A checkpoint on its way. Its write beside training may see the ranks change: it has the place
  // that it was begun in.
  struct Saving {
    CheckpointId id;
    uint64_t number = 0;  // of those that this generation has begun
    uint32_t rank = 0;
    uint32_t world_size = 1;
    bool shards = false;  // each rank writes a file of its own
    std::optional<double> score;
    CheckpointTensors main;
    CheckpointTensors shard;
  };
  struct Pending {
    CheckpointId id;
    bool shards = false;
    bool given_up = false;
  };

  Context& context;
  std::shared_ptr<torch::nn::Module> module;
  torch::optim::Optimizer& optimizer;
  CheckpointerOptions options;
  std::vector<Extra> extras;
  ExponentialMovingAverage* average = nullptr;  // null = none
  uint64_t fence = 1;                           // of what this generation writes
  uint64_t saves = 0;
  std::optional<Pending> pending;  // the same on all ranks
  worker::TensorCopies main_copies;
  worker::TensorCopies shard_copies;

  // Null: the optimizer is none.
  ZeroOptimizer* zero() const { return dynamic_cast<ZeroOptimizer*>(&optimizer); }
  // Whether each rank writes a file of its own.
  bool WritesShards() const;
  // The optimizer's tensors that rank 0 writes; a collective.
  absl::StatusOr<CheckpointTensors> OptimizerState() const;
  // The same of parameters that are shared out.
  absl::StatusOr<CheckpointTensors> SharedOutParameters() const;
  // What this rank writes: rank 0, nothing on others, a collective; and of its own.
  absl::StatusOr<CheckpointTensors> MainTensors(const TrainingProgress& progress) const;
  absl::StatusOr<CheckpointTensors> ShardTensors() const;
  // Without its tensors.
  Saving Begin(const TrainingProgress& progress, std::optional<double> score);
  // Copies what is to be written, and has it written.
  absl::Status SaveBeside(const TrainingProgress& progress, std::optional<double> score);
  absl::Status WriteBeside(const Saving& saving,
                           const c10::intrusive_ptr<c10d::Store>& store) const;
  // All ranks'; a collective. Returns: the shards' checksums.
  absl::StatusOr<std::vector<uint32_t>> WriteShards(Saving& saving) const;
  // Each returns its file's checksum.
  absl::StatusOr<uint32_t> WriteShard(const Saving& saving) const;
  absl::StatusOr<uint32_t> WriteMain(const Saving& saving, std::vector<uint32_t> shards) const;
  absl::StatusOr<uint32_t> Write(const std::function<std::string(uint32_t checksum)>& name,
                                 const CheckpointTensors& tensors, const Manifest& manifest,
                                 uint32_t world_size) const;
  // Removes what needn't stay once `newest` is there: one rank's by itself, or all ranks', a
  // collective.
  void Prune(const CheckpointId& newest) const;
  absl::Status PruneTogether(const CheckpointId& newest) const;
  // Adds the shards' tensors. Answers whether there were all.
  absl::StatusOr<bool> AddShards(const LoadedCheckpoint& loaded, CheckpointTensors& tensors) const;
  // Whether the optimizer has its state in what all ranks read and what is in the own shard.
  bool Suffices(const CheckpointTensors& all, const CheckpointTensors& own) const;
  absl::StatusOr<TrainingProgress> Apply(const CheckpointTensors& tensors) const;
  void NotifyOfNone() const;

  worker::BackgroundWrite write;  // last: it uses the others
};

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
      if (!whole) continue;
      const absl::StatusOr<TrainingProgress> progress =
          worker::CatchExceptions([&] { return self.Apply(tensors); });
      DDPRUN_RETURN_IF_ERROR(worker::AgreeOnSuccess(
          self.context, progress.status(),
          absl::StrCat("resume from '", worker::CheckpointName(loaded->id), "'")));
      self.fence = loaded->id.fence + 1;
      return std::optional<TrainingProgress>(*progress);
    }
  });
}

void Checkpointer::LeaveGeneration() {
  Implementation& self = *implementation_;
  self.saves = 0;  // some may have begun none
  // Others can't be asked any more whether they have written theirs.
  if (self.pending.has_value() && self.pending->shards) self.pending->given_up = true;
}

absl::Status Checkpointer::GoOnWithOthers() {
  Implementation& self = *implementation_;
  const torch::Tensor own = torch::tensor({static_cast<int64_t>(self.fence)});
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<torch::Tensor> all,
                          self.context.AllGather(own.to(self.context.device())));
  for (const torch::Tensor& fence : all) {
    self.fence = std::max(self.fence, static_cast<uint64_t>(fence.item<int64_t>()));
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointTensors> Checkpointer::Implementation::OptimizerState() const {
  if (zero() == nullptr) {
    if (!context.is_main()) return CheckpointTensors{};
    return worker::GetOptimizerState(optimizer);
  }
  if (options.sharded) return CheckpointTensors{};
  return zero()->ConsolidatedState(/*target=*/0);
}

absl::StatusOr<CheckpointTensors> Checkpointer::Implementation::SharedOutParameters() const {
  if (zero() == nullptr) return CheckpointTensors{};
  return zero()->SharedOutParameters(/*target=*/0);
}

absl::StatusOr<uint32_t> Checkpointer::Implementation::Write(
    const std::function<std::string(uint32_t checksum)>& name, const CheckpointTensors& tensors,
    const Manifest& manifest, uint32_t world_size) const {
  std::vector<torch::Tensor> kept;
  DDPRUN_ASSIGN_OR_RETURN(TensorFile file, worker::ToTensorFile(tensors, kept));
  file.metadata = {{"format", "ddprun checkpoint 1"},
                   {"run_id", context.run_id()},
                   {"world_size", absl::StrCat(world_size)}};
  worker::PutManifest(manifest, file.metadata);
  uint32_t checksum = 0;
  const std::string header = worker::EncodeTensorFileHeader(file, &checksum);
  std::vector<absl::string_view> pieces = {header};
  for (const worker::TensorEntry& entry : file.tensors) pieces.push_back(entry.bytes);
  DDPRUN_RETURN_IF_ERROR(worker::MakeDirectories(options.directory));
  DDPRUN_RETURN_IF_ERROR(
      worker::WriteFileAtomically(absl::StrCat(options.directory, "/", name(checksum)), pieces));
  return checksum;
}

absl::StatusOr<CheckpointTensors> Checkpointer::Implementation::ShardTensors() const {
  CheckpointTensors tensors;
  if (options.sharded && zero() != nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors state, zero()->ShardedState());
    worker::AddTensors(worker::kOptimizerPrefix, state, tensors);
  }
  for (const Extra& extra : extras) {
    if (!extra.state.differs_by_rank()) continue;
    worker::AddTensors(worker::ExtraPrefix(extra.name), extra.state.SaveState(), tensors);
  }
  return tensors;
}

absl::StatusOr<CheckpointTensors> Checkpointer::Implementation::MainTensors(
    const TrainingProgress& progress) const {
  const torch::Tensor generators = worker::GetGenerators(context.device()).to(context.device());
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<torch::Tensor> all, context.AllGather(generators));
  DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors optimizer_state, OptimizerState());
  DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors parameters, SharedOutParameters());
  CheckpointTensors averages;
  if (average != nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(averages, average->Whole(/*target=*/0));
  }
  CheckpointTensors tensors;
  if (!context.is_main()) return tensors;
  tensors = worker::CollectTensors(*module, progress);
  worker::AddAverages(averages, *module, tensors);
  worker::AddTensors(worker::kModelPrefix, parameters, tensors);
  worker::AddTensors(worker::kOptimizerPrefix, optimizer_state, tensors);
  for (const Extra& extra : extras) {
    if (extra.state.differs_by_rank()) continue;
    worker::AddTensors(worker::ExtraPrefix(extra.name), extra.state.SaveState(), tensors);
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    tensors[absl::StrCat("generators.", rank)] = all[rank];
  }
  return tensors;
}

absl::StatusOr<uint32_t> Checkpointer::Implementation::WriteShard(const Saving& saving) const {
  const auto name = [&](uint32_t checksum) {
    return worker::ShardName(saving.id, saving.rank, saving.world_size, checksum);
  };
  return Write(name, saving.shard, {}, saving.world_size);
}

absl::StatusOr<uint32_t> Checkpointer::Implementation::WriteMain(
    const Saving& saving, std::vector<uint32_t> shards) const {
  const auto name = [&](uint32_t /*checksum*/) { return worker::CheckpointName(saving.id); };
  return Write(name, saving.main, {.shards = std::move(shards), .score = saving.score},
               saving.world_size);
}

absl::StatusOr<std::vector<uint32_t>> Checkpointer::Implementation::WriteShards(
    Saving& saving) const {
  const absl::StatusOr<uint32_t> checksum = [&]() -> absl::StatusOr<uint32_t> {
    DDPRUN_ASSIGN_OR_RETURN(saving.shard, ShardTensors());
    return WriteShard(saving);
  }();
  DDPRUN_RETURN_IF_ERROR(
      worker::AgreeOnSuccess(context, checksum.status(), "write its shard of the checkpoint"));
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> all, worker::GatherNumber(context, *checksum));
  return std::vector<uint32_t>(all.begin(), all.end());
}

void Checkpointer::Implementation::Prune(const CheckpointId& newest) const {
  std::vector<worker::FoundCheckpoint> whole;
  for (const worker::FoundCheckpoint& one : worker::FindCheckpoints(options.directory, newest)) {
    bool has_all = true;  // from when each rank wrote one
    for (uint32_t i = 0; i < one.manifest.shards.size() && has_all; ++i) {
      has_all = worker::HasShard(options.directory, one, i);
    }
    if (has_all) whole.push_back(one);
  }
  worker::PruneCheckpoints(options.directory, worker::PlanPruning(newest, whole, options.keep));
}

absl::Status Checkpointer::Implementation::PruneTogether(const CheckpointId& newest) const {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<worker::FoundCheckpoint> whole,
                          worker::AgreeOnWhole(context, options.directory, newest));
  // Nodes may have directories of their own. All have cleared up before anybody writes again.
  if (context.local_rank() == 0) {
    worker::PruneCheckpoints(options.directory, worker::PlanPruning(newest, whole, options.keep));
  }
  return context.Barrier();
}

Checkpointer::Implementation::Saving Checkpointer::Implementation::Begin(
    const TrainingProgress& progress, std::optional<double> score) {
  return {.id = {.fence = fence,
                 .generation = context.generation(),
                 .step = static_cast<uint64_t>(progress.step)},
          .number = saves++,
          .rank = context.rank(),
          .world_size = context.world_size(),
          .shards = WritesShards(),
          .score = score,
          .main = {},
          .shard = {}};
}

absl::StatusOr<bool> Checkpointer::IsBest(double score) {
  Implementation& self = *implementation_;
  DDPRUN_RETURN_IF_ERROR(Wait());
  return worker::CatchExceptions([&]() -> absl::StatusOr<bool> {
    int64_t is_best = 0;
    if (self.context.is_main()) {
      const std::vector<worker::FoundCheckpoint> found =
          worker::FindCheckpoints(self.options.directory);
      const worker::FoundCheckpoint* best = worker::BestOf(found);
      is_best = best != nullptr ? score > *best->manifest.score : !std::isnan(score);
    }
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> all,
                            worker::GatherNumber(self.context, is_best));
    return all[0] != 0;
  });
}

absl::Status Checkpointer::Save(const TrainingProgress& progress, std::optional<double> score) {
  Implementation& self = *implementation_;
  DDPRUN_RETURN_IF_ERROR(Wait());
  self.context.Mark(ProgressPhase::kCheckpoint, progress.step);
  return worker::CatchExceptions([&]() -> absl::Status {
    Implementation::Saving saving = self.Begin(progress, score);
    DDPRUN_ASSIGN_OR_RETURN(saving.main, self.MainTensors(progress));
    // First the shards: where there is a checkpoint, there are all of them.
    std::vector<uint32_t> shards;
    if (saving.shards) {
      DDPRUN_ASSIGN_OR_RETURN(shards, self.WriteShards(saving));
    }
    absl::Status written;
    if (saving.rank == 0) written = self.WriteMain(saving, shards).status();
    if (saving.shards) {
      DDPRUN_RETURN_IF_ERROR(worker::AgreeOnSuccess(self.context, written, "write the checkpoint"));
      return self.PruneTogether(saving.id);
    }
    if (written.ok() && saving.rank == 0) self.Prune(saving.id);
    return written;
  });
}

absl::Status Checkpointer::SaveAsync(const TrainingProgress& progress,
                                     std::optional<double> score) {
  Implementation& self = *implementation_;
  DDPRUN_RETURN_IF_ERROR(Wait());
  self.context.Mark(ProgressPhase::kCheckpoint, progress.step);
  return worker::CatchExceptions([&] { return self.SaveBeside(progress, score); });
}

absl::Status Checkpointer::Implementation::SaveBeside(const TrainingProgress& progress,
                                                      std::optional<double> score) {
  DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors main, MainTensors(progress));
  Saving saving = Begin(progress, score);
  const absl::Status copied = worker::CatchExceptions([&]() -> absl::Status {
    saving.main = main_copies.Take(main);
    if (!saving.shards) return absl::OkStatus();
    DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors shard, ShardTensors());
    saving.shard = shard_copies.Take(shard);
    return absl::OkStatus();
  });
  // A rank without one would be waited for by the others' threads.
  DDPRUN_RETURN_IF_ERROR(
      saving.shards ? worker::AgreeOnSuccess(context, copied, "copy its shard of the checkpoint")
                    : copied);
  pending = Pending{.id = saving.id, .shards = saving.shards};
  if (!saving.shards && saving.rank != 0) return absl::OkStatus();
  // Its own connection, where it is needed: a call that waits keeps it.
  auto store =
      saving.shards && saving.world_size > 1 ? context.implementation().store->clone() : nullptr;
  write.Start([this, saving = std::move(saving), store] { return WriteBeside(saving, store); });
  return absl::OkStatus();
}

// In the thread. It has no collectives, which are training's; ranks tell rank 0 by the store.
absl::Status Checkpointer::Implementation::WriteBeside(
    const Saving& saving, const c10::intrusive_ptr<c10d::Store>& store) const {
  if (!saving.shards) {
    DDPRUN_RETURN_IF_ERROR(WriteMain(saving, {}).status());
    Prune(saving.id);
    return absl::OkStatus();
  }
  const absl::StatusOr<uint32_t> written = WriteShard(saving);
  if (store == nullptr) {
    DDPRUN_RETURN_IF_ERROR(written.status());
    return WriteMain(saving, {*written}).status();
  }
  std::vector<uint32_t> shards =
      worker::ShareChecksums(*store, saving.number, saving.rank, saving.world_size, written);
  if (shards.empty()) return written.status();  // who failed says so when they agree on it
  return WriteMain(saving, std::move(shards)).status();
}

absl::Status Checkpointer::Wait() {
  Implementation& self = *implementation_;
  if (!self.pending.has_value()) return absl::OkStatus();
  const Implementation::Pending pending = *std::exchange(self.pending, std::nullopt);
  return worker::CatchExceptions([&]() -> absl::Status {
    if (pending.given_up) {
      self.write.Abandon();
      return absl::OkStatus();
    }
    const absl::Status written = self.write.Finish();
    if (!pending.shards) return written;  // and pruned
    DDPRUN_RETURN_IF_ERROR(worker::AgreeOnSuccess(self.context, written, "write the checkpoint"));
    return self.PruneTogether(pending.id);
  });
}

}  // namespace ddprun
