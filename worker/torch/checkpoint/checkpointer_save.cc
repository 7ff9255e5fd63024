// How checkpoints are saved, beside training or not.
#include <algorithm>
#include <cmath>
#include <functional>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/torch/checkpoint/atomic_file.h"
#include "worker/torch/checkpoint/checkpoint_exchange.h"
#include "worker/torch/checkpoint/checkpointer_implementation.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/optim/optimizer_state.h"

namespace ddprun {

using worker::CheckpointId;
using worker::CheckpointTensors;
using worker::Manifest;
using worker::TensorFile;

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

// A disk may take longer than a worker has to let go of a generation that ends.
bool Checkpointer::Implementation::AwaitWrite() {
  const worker::GenerationEnd* end = context.implementation().end.get();
  return write.Await(end != nullptr ? end->over() : std::stop_token());
}

// Every rank knows it, and the next one is saved as ever.
void Checkpointer::Implementation::NotifyOfGivenUp(const CheckpointId& id,
                                                   const absl::Status& why) const {
  Log(LogLevel::kInfo,
      absl::StrCat("the checkpoint of step ", id.step, " is given up: generation ", id.generation,
                   " ended before all shards were written (", why.message(), ")"));
}

absl::Status Checkpointer::Wait() {
  Implementation& self = *implementation_;
  if (!self.pending.has_value()) return absl::OkStatus();
  if (!self.AwaitWrite()) {
    return absl::UnavailableError(absl::StrCat(
        worker::kPeerErrorPrefix, "the generation has ended while a checkpoint was being written"));
  }
  const Implementation::Pending pending = *std::exchange(self.pending, std::nullopt);
  return worker::CatchExceptions([&]() -> absl::Status {
    const absl::Status written = self.write.Finish();
    if (pending.given_up) {
      if (!written.ok()) self.NotifyOfGivenUp(pending.id, written);
      return absl::OkStatus();
    }
    if (!pending.shards) return written;  // and pruned
    DDPRUN_RETURN_IF_ERROR(worker::AgreeOnSuccess(self.context, written, "write the checkpoint"));
    return self.PruneTogether(pending.id);
  });
}

}  // namespace ddprun
