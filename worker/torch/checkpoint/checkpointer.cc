#include "ddprun/checkpointer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
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
using worker::TensorFile;

struct Checkpointer::Implementation {
  struct Extra {
    std::string name;
    CheckpointedState& state;
  };

  // What SaveAsync has copied.
  struct Pending {
    CheckpointId id;
    uint64_t number = 0;  // of those that this generation has begun
    CheckpointTensors main;
    CheckpointTensors shard;
  };

  Context& context;
  std::shared_ptr<torch::nn::Module> module;
  torch::optim::Optimizer& optimizer;
  CheckpointerOptions options;
  std::vector<Extra> extras;
  uint64_t fence = 1;  // of what this generation writes
  uint64_t saves = 0;
  std::optional<CheckpointId> pending;  // the same on all ranks
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
  absl::Status WriteShard(const CheckpointId& id, const CheckpointTensors& tensors) const;
  absl::Status WriteMain(const CheckpointId& id, const CheckpointTensors& tensors) const;
  CheckpointId IdOf(const TrainingProgress& progress) const;
  // Copies what is to be written, and has it written.
  absl::Status Begin(const TrainingProgress& progress);
  absl::Status WriteBeside(const Pending& next, const c10::intrusive_ptr<c10d::Store>& store) const;
  absl::Status Write(const std::string& name, const CheckpointTensors& tensors,
                     uint32_t shards) const;
  // Removes what is older than the last `keep` whole checkpoints; a collective where each rank
  // writes a file.
  absl::Status Prune(const CheckpointId& newest, bool shards) const;
  // Adds the shards' tensors. Answers whether there were all.
  absl::StatusOr<bool> AddShards(const LoadedCheckpoint& loaded, CheckpointTensors& tensors) const;
  // Whether the optimizer has its state in what all ranks read and what is in the own shard.
  bool Suffices(const CheckpointTensors& all, const CheckpointTensors& own) const;
  absl::StatusOr<TrainingProgress> Apply(const CheckpointTensors& tensors) const;
  void NotifyOfNone() const;

  worker::BackgroundWrite write;  // last: it uses the others
};

namespace {

absl::Status RestoreGenerators(const CheckpointTensors& tensors, const Context& context,
                               int64_t step) {
  const auto found = tensors.find(absl::StrCat("generators.", context.rank()));
  if (found != tensors.end()) return worker::SetGenerators(context.device(), found->second);
  worker::SeedGenerators(context.device(), step, context.rank());
  return absl::OkStatus();
}

}  // namespace

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
  const uint32_t shards = worker::ShardsOf(loaded.file);
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
      context, options.directory, loaded.id, shards,
      [&](const CheckpointTensors& own) { return Suffices(tensors, own); }, take);
}

absl::StatusOr<TrainingProgress> Checkpointer::Implementation::Apply(
    const CheckpointTensors& tensors) const {
  DDPRUN_ASSIGN_OR_RETURN(const TrainingProgress progress,
                          worker::ApplyTensors(tensors, *module, optimizer));
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
  DDPRUN_RETURN_IF_ERROR(RestoreGenerators(tensors, context, progress.step));
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
    std::optional<CheckpointId> before;
    while (true) {
      DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedCheckpoint> loaded,
                              worker::AgreeOnNewest(self.context, self.options.directory, before));
      if (loaded == nullptr && before.has_value()) {
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
      before = loaded->id;
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

absl::Status Checkpointer::Implementation::Write(const std::string& name,
                                                 const CheckpointTensors& tensors,
                                                 uint32_t shards) const {
  std::vector<torch::Tensor> kept;
  DDPRUN_ASSIGN_OR_RETURN(TensorFile file, worker::ToTensorFile(tensors, kept));
  file.metadata = {{"format", "ddprun checkpoint 1"},
                   {"run_id", context.run_id()},
                   {"world_size", absl::StrCat(context.world_size())}};
  if (shards > 0) file.metadata[worker::kShards] = absl::StrCat(shards);
  const std::string header = worker::EncodeTensorFileHeader(file);
  std::vector<absl::string_view> pieces = {header};
  for (const worker::TensorEntry& entry : file.tensors) pieces.push_back(entry.bytes);
  DDPRUN_RETURN_IF_ERROR(worker::MakeDirectories(options.directory));
  return worker::WriteFileAtomically(absl::StrCat(options.directory, "/", name), pieces);
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
  CheckpointTensors tensors;
  if (!context.is_main()) return tensors;
  tensors = worker::CollectTensors(*module, progress);
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

absl::Status Checkpointer::Implementation::WriteShard(const CheckpointId& id,
                                                      const CheckpointTensors& tensors) const {
  return Write(worker::ShardName(id, context.rank(), context.world_size()), tensors, 0);
}

absl::Status Checkpointer::Implementation::WriteMain(const CheckpointId& id,
                                                     const CheckpointTensors& tensors) const {
  return Write(worker::CheckpointName(id), tensors, WritesShards() ? context.world_size() : 0);
}

absl::Status Checkpointer::Implementation::Prune(const CheckpointId& newest, bool shards) const {
  if (!shards) {
    if (!context.is_main()) return absl::OkStatus();
    std::vector<CheckpointId> whole;
    for (const worker::FoundCheckpoint& one : worker::FindCheckpoints(options.directory, newest)) {
      bool has_all = true;  // from when each rank wrote one
      for (uint32_t i = 0; i < one.shards && has_all; ++i) {
        has_all = worker::HasShard(options.directory, one.id, i, one.shards);
      }
      if (has_all) whole.push_back(one.id);
    }
    worker::PruneCheckpoints(options.directory, worker::OldestToKeep(whole, options.keep));
    return absl::OkStatus();
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<CheckpointId> whole,
                          worker::AgreeOnWhole(context, options.directory, newest));
  // Nodes may have directories of their own. All have cleared up before anybody writes again.
  if (context.local_rank() == 0) {
    worker::PruneCheckpoints(options.directory, worker::OldestToKeep(whole, options.keep));
  }
  return context.Barrier();
}

CheckpointId Checkpointer::Implementation::IdOf(const TrainingProgress& progress) const {
  return {.fence = fence,
          .generation = context.generation(),
          .step = static_cast<uint64_t>(progress.step)};
}

absl::Status Checkpointer::Save(const TrainingProgress& progress) {
  Implementation& self = *implementation_;
  DDPRUN_RETURN_IF_ERROR(Wait());
  self.context.Mark(ProgressPhase::kCheckpoint, progress.step);
  return worker::CatchExceptions([&]() -> absl::Status {
    const bool shards = self.WritesShards();
    DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors main, self.MainTensors(progress));
    const CheckpointId id = self.IdOf(progress);
    // First the shards: where there is a checkpoint, there are all of them.
    if (shards) {
      const absl::StatusOr<CheckpointTensors> shard = self.ShardTensors();
      DDPRUN_RETURN_IF_ERROR(worker::AgreeOnSuccess(
          self.context, shard.ok() ? self.WriteShard(id, *shard) : shard.status(),
          "write its shard of the checkpoint"));
    }
    absl::Status written;
    if (self.context.is_main()) written = self.WriteMain(id, main);
    if (shards) written = worker::AgreeOnSuccess(self.context, written, "write the checkpoint");
    DDPRUN_RETURN_IF_ERROR(written);
    return self.Prune(id, shards);
  });
}

absl::Status Checkpointer::SaveAsync(const TrainingProgress& progress) {
  Implementation& self = *implementation_;
  DDPRUN_RETURN_IF_ERROR(Wait());
  self.context.Mark(ProgressPhase::kCheckpoint, progress.step);
  return worker::CatchExceptions([&] { return self.Begin(progress); });
}

absl::Status Checkpointer::Implementation::Begin(const TrainingProgress& progress) {
  DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors main, MainTensors(progress));
  Pending next = {.id = IdOf(progress), .number = saves++, .main = {}, .shard = {}};
  const absl::Status copied = worker::CatchExceptions([&]() -> absl::Status {
    next.main = main_copies.Take(main);
    if (!WritesShards()) return absl::OkStatus();
    DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors shard, ShardTensors());
    next.shard = shard_copies.Take(shard);
    return absl::OkStatus();
  });
  // A rank without one would be waited for by the others' threads.
  DDPRUN_RETURN_IF_ERROR(
      WritesShards() ? worker::AgreeOnSuccess(context, copied, "copy its shard of the checkpoint")
                     : copied);
  pending = next.id;
  // Its own connection, where there is one: a call that waits keeps it.
  auto store = context.world_size() > 1 ? context.implementation().store->clone() : nullptr;
  write.Start([this, next = std::move(next), store] { return WriteBeside(next, store); });
  return absl::OkStatus();
}

// In the thread. It has no collectives, which are training's; ranks tell rank 0 by the store.
absl::Status Checkpointer::Implementation::WriteBeside(
    const Pending& next, const c10::intrusive_ptr<c10d::Store>& store) const {
  if (!WritesShards()) {
    if (!context.is_main()) return absl::OkStatus();
    DDPRUN_RETURN_IF_ERROR(WriteMain(next.id, next.main));
    return Prune(next.id, /*shards=*/false);
  }
  const absl::Status written = WriteShard(next.id, next.shard);
  if (store == nullptr) {
    DDPRUN_RETURN_IF_ERROR(written);
    return WriteMain(next.id, next.main);
  }
  const auto key = [&](uint32_t rank) {
    return absl::StrCat("ddprun/checkpoint/", next.number, "/", rank);
  };
  store->set(key(context.rank()), written.ok() ? "written" : "failed");
  if (!context.is_main()) return written;
  bool all_written = true;
  for (uint32_t rank = 0; rank < context.world_size(); ++rank) {
    all_written = store->get_to_str(key(rank)) == "written" && all_written;
    store->deleteKey(key(rank));
  }
  // Who failed says so when they agree on it.
  return all_written ? WriteMain(next.id, next.main) : written;
}

absl::Status Checkpointer::Wait() {
  Implementation& self = *implementation_;
  if (!self.pending.has_value()) return absl::OkStatus();
  const CheckpointId id = *std::exchange(self.pending, std::nullopt);
  return worker::CatchExceptions([&]() -> absl::Status {
    const absl::Status written = self.write.Finish();
    if (!self.WritesShards()) return written;  // and pruned
    DDPRUN_RETURN_IF_ERROR(worker::AgreeOnSuccess(self.context, written, "write the checkpoint"));
    return self.Prune(id, /*shards=*/true);
  });
}

}  // namespace ddprun
