#include "worker/torch/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stop_token>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/torch/checkpoint/atomic_file.h"
#include "worker/torch/checkpoint/checkpoint_exchange.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {
namespace {

// Only logged: every rank knows that this checkpoint was given up, and the next one is saved.
void LogGivenUp(const CheckpointId& id, const absl::Status& why) {
  Log(LogLevel::kInfo,
      absl::StrCat("the checkpoint of step ", id.step, " is given up: generation ", id.generation,
                   " ended before all shards were written (", why.message(), ")"));
}

}  // namespace

// ------------------------------------------------------------- files

absl::StatusOr<uint32_t> CheckpointWriter::Write(
    const std::function<std::string(uint32_t checksum)>& name, const CheckpointTensors& tensors,
    uint32_t world_size, std::map<std::string, std::string> metadata) const {
  std::vector<torch::Tensor> kept;
  DDPRUN_ASSIGN_OR_RETURN(TensorFile file, ToTensorFile(tensors, kept));
  metadata["format"] = "ddprun checkpoint 1";
  metadata["run_id"] = context_.run_id();
  metadata["world_size"] = absl::StrCat(world_size);
  file.metadata = std::move(metadata);
  uint32_t checksum = 0;
  const std::string header = EncodeTensorFileHeader(file, &checksum);
  std::vector<absl::string_view> pieces = {header};
  for (const TensorEntry& entry : file.tensors) pieces.push_back(entry.bytes);
  DDPRUN_RETURN_IF_ERROR(MakeDirectories(directory_));
  DDPRUN_RETURN_IF_ERROR(
      WriteFileAtomically(absl::StrCat(directory_, "/", name(checksum)), pieces));
  return checksum;
}

absl::StatusOr<uint32_t> CheckpointWriter::WriteShard(const Saving& saving) const {
  const auto name = [&](uint32_t checksum) {
    return ShardName(saving.id, saving.rank, saving.world_size, checksum);
  };
  return Write(name, saving.shard, saving.world_size, {});
}

absl::Status CheckpointWriter::WriteMain(const Saving& saving, std::vector<uint32_t> shards) const {
  const auto name = [&](uint32_t /*checksum*/) { return CheckpointName(saving.id); };
  std::map<std::string, std::string> metadata = notes_;
  PutManifest({.shards = std::move(shards), .score = saving.score}, metadata);
  return Write(name, saving.main, saving.world_size, std::move(metadata)).status();
}

absl::StatusOr<std::vector<uint32_t>> CheckpointWriter::WriteShards(const Saving& saving) const {
  const absl::StatusOr<uint32_t> checksum = WriteShard(saving);
  DDPRUN_RETURN_IF_ERROR(
      AgreeOnSuccess(context_, checksum.status(), "write its shard of the checkpoint"));
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> all, GatherNumber(context_, *checksum));
  return std::vector<uint32_t>(all.begin(), all.end());
}

// ------------------------------------------------------------- what isn't written

// A gradient with a NaN beside a finite loss puts a NaN into the parameters, and the next step's
// loss is a NaN. If these parameters became the newest checkpoint, each restart would resume from
// them and fail, until no restarts remain. So no rank writes them, and a restart resumes from the
// checkpoint before.
//
// The save still counts as done and training goes on. As a rule the loss ends training within the
// next steps, with an error of its own. If it doesn't, because nothing uses that parameter, the run
// would have gone on without this check as well.
std::string CheckpointWriter::WhyWithheld(const Saving& saving) const {
  std::string bad = training_.watch().FindBad(saving.main);
  if (bad.empty()) bad = training_.watch().FindBad(saving.shard);
  if (bad.empty()) return "";
  return absl::StrCat(
      "the checkpoint of step ", saving.id.step, " isn't written: on rank ", saving.rank, " ", bad,
      ", so that no run could go on from it; a restart takes the one before it. Clip the gradients "
      "(--max_grad_norm): that ends the step whose gradient isn't finite, names its parameter, and "
      "leaves the parameters as they were. What is infinite on purpose is left alone in a buffer, "
      "or if the model is made with it");
}

absl::StatusOr<bool> CheckpointWriter::IsWithheldAnywhere(const std::string& own,
                                                          bool is_said) const {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> all,
                          GatherNumber(context_, own.empty() ? 0 : 1));
  const auto first = std::find(all.begin(), all.end(), 1) - all.begin();
  if (first == context_.rank() && !is_said) Log(LogLevel::kWarning, own);
  return first < static_cast<int64_t>(all.size());
}

// ------------------------------------------------------------- what needn't stay

void CheckpointWriter::PruneAlone(const CheckpointId& newest) const {
  std::vector<FoundCheckpoint> whole;
  for (const FoundCheckpoint& one : FindCheckpoints(directory_, newest)) {
    bool has_all = true;  // its shards, if each rank wrote one
    for (uint32_t i = 0; i < one.manifest.shards.size() && has_all; ++i) {
      has_all = HasShard(directory_, one, i);
    }
    if (has_all) whole.push_back(one);
  }
  PruneCheckpoints(directory_, PlanPruning(newest, whole, keep_));
}

absl::StatusOr<std::optional<PrunePlan>> CheckpointWriter::PlanTogether(
    const CheckpointId& newest) const {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> whole,
                          AgreeOnWhole(context_, directory_, newest));
  // Nodes may have directories of their own.
  if (context_.local_rank() != 0) return std::optional<PrunePlan>();
  return std::optional<PrunePlan>(PlanPruning(newest, whole, keep_));
}

absl::Status CheckpointWriter::PruneTogether(const CheckpointId& newest) const {
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<PrunePlan> plan, PlanTogether(newest));
  if (plan.has_value()) PruneCheckpoints(directory_, *plan);
  return context_.Barrier();
}

absl::StatusOr<bool> CheckpointWriter::IsBest(double score) {
  DDPRUN_RETURN_IF_ERROR(Wait());
  int64_t is_best = 0;
  if (context_.is_main()) {
    const std::vector<FoundCheckpoint> found = FindCheckpoints(directory_);
    const FoundCheckpoint* best = BestOf(found);
    is_best = best != nullptr ? score > *best->manifest.score : !std::isnan(score);
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> all, GatherNumber(context_, is_best));
  return all[0] != 0;
}

// ------------------------------------------------------------- a save

CheckpointWriter::Saving CheckpointWriter::Begin(const TrainingProgress& progress,
                                                 std::optional<double> score) {
  return {.id = {.fence = fence_,
                 .generation = context_.generation(),
                 .step = static_cast<uint64_t>(progress.step)},
          .number = saves_++,
          .rank = context_.rank(),
          .world_size = context_.world_size(),
          .shards = training_.HasShards(),
          .score = score,
          .main = {},
          .shard = {}};
}

absl::Status CheckpointWriter::Claim(bool saves) {
  if (claimed_in_ == context_.generation()) return absl::OkStatus();
  absl::Status taken;
  if (context_.is_main() && !lock_.is_held()) {
    absl::StatusOr<WriterLock> lock = WriterLock::Take(
        directory_, {.run_id = context_.run_id(),
                     .restarts = context_.restart_count() > 0 || context_.generation() > 1});
    // The write reports this error itself.
    const bool is_told = saves && absl::IsAlreadyExists(lock.status());
    if (!is_told) taken = lock.status();
    if (lock.ok()) lock_ = *std::move(lock);
  }
  DDPRUN_RETURN_IF_ERROR(OutcomeOfMain(context_, taken));
  claimed_in_ = context_.generation();
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Save(const TrainingProgress& progress, std::optional<double> score) {
  DDPRUN_RETURN_IF_ERROR(Claim(/*saves=*/true));
  DDPRUN_RETURN_IF_ERROR(Wait());
  context_.Mark(ProgressPhase::kCheckpoint, progress.step);
  Saving saving = Begin(progress, score);
  DDPRUN_ASSIGN_OR_RETURN(saving.main, training_.MainTensors(progress));
  if (saving.shards) return SaveWithShards(saving);
  if (saving.rank != 0) return absl::OkStatus();
  if (const std::string why = WhyWithheld(saving); !why.empty()) {
    Log(LogLevel::kWarning, why);
    return absl::OkStatus();
  }
  DDPRUN_RETURN_IF_ERROR(WriteMain(saving, {}));
  PruneAlone(saving.id);
  return absl::OkStatus();
}

absl::Status CheckpointWriter::SaveWithShards(Saving& saving) const {
  absl::StatusOr<CheckpointTensors> shard = training_.ShardTensors();
  DDPRUN_RETURN_IF_ERROR(
      AgreeOnSuccess(context_, shard.status(), "take its shard of the checkpoint"));
  saving.shard = *std::move(shard);
  DDPRUN_ASSIGN_OR_RETURN(const bool is_withheld, IsWithheldAnywhere(WhyWithheld(saving), false));
  if (is_withheld) return absl::OkStatus();
  // The shards first, so that a checkpoint that exists has all of its shards.
  DDPRUN_ASSIGN_OR_RETURN(std::vector<uint32_t> shards, WriteShards(saving));
  absl::Status written;
  if (saving.rank == 0) written = WriteMain(saving, std::move(shards));
  DDPRUN_RETURN_IF_ERROR(AgreeOnSuccess(context_, written, "write the checkpoint"));
  return PruneTogether(saving.id);
}

absl::Status CheckpointWriter::SaveAsync(const TrainingProgress& progress,
                                         std::optional<double> score) {
  DDPRUN_RETURN_IF_ERROR(Claim(/*saves=*/true));
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<CheckpointId> last, Settle());
  std::optional<PrunePlan> prune;
  if (last.has_value()) {
    DDPRUN_ASSIGN_OR_RETURN(prune, PlanTogether(*last));
  }
  context_.Mark(ProgressPhase::kCheckpoint, progress.step);
  return SaveBeside(progress, score, prune);
}

absl::Status CheckpointWriter::SaveBeside(const TrainingProgress& progress,
                                          std::optional<double> score,
                                          std::optional<PrunePlan> prune) {
  DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors main, training_.MainTensors(progress));
  Saving saving = Begin(progress, score);
  const absl::Status copied = CatchExceptions([&]() -> absl::Status {
    saving.main = main_copies_.Take(main);
    if (!saving.shards) return absl::OkStatus();
    DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors shard, training_.ShardTensors());
    saving.shard = shard_copies_.Take(shard);
    return absl::OkStatus();
  });
  // The other ranks' threads would wait for a rank that has no shard.
  DDPRUN_RETURN_IF_ERROR(saving.shards
                             ? AgreeOnSuccess(context_, copied, "copy its shard of the checkpoint")
                             : copied);
  pending_ = Pending{.id = saving.id, .shards = saving.shards};
  if (!saving.shards && saving.rank != 0) return absl::OkStatus();
  // The thread gets a connection of its own, because a call that waits occupies the connection.
  auto store =
      saving.shards && saving.world_size > 1 ? context_.implementation().store->clone() : nullptr;
  write_.Start([this, saving = std::move(saving), store, prune] {
    // In the thread, because removing a large file takes time.
    if (prune.has_value()) PruneCheckpoints(directory_, *prune);
    withheld_ = WhyWithheld(saving);
    // Logged at once, because the job may end before Finish().
    if (!withheld_.empty() && saving.rank == 0) Log(LogLevel::kWarning, withheld_);
    return WriteBeside(saving, store);
  });
  return absl::OkStatus();
}

// Runs in the thread, which can't use collectives, because training does: ranks report to rank 0
// through the store.
absl::Status CheckpointWriter::WriteBeside(const Saving& saving,
                                           const c10::intrusive_ptr<c10d::Store>& store) {
  shard_.clear();
  if (!withheld_.empty()) {
    // Rank 0 then publishes nothing, as for a shard that couldn't be written.
    if (store != nullptr) {
      ShareChecksums(*store, saving.number, saving.rank, saving.world_size,
                     absl::CancelledError(withheld_));
    }
    return absl::OkStatus();
  }
  if (!saving.shards) {
    DDPRUN_RETURN_IF_ERROR(WriteMain(saving, {}));
    PruneAlone(saving.id);
    return absl::OkStatus();
  }
  const absl::StatusOr<uint32_t> written = WriteShard(saving);
  if (written.ok()) shard_ = ShardName(saving.id, saving.rank, saving.world_size, *written);
  if (store == nullptr) {
    DDPRUN_RETURN_IF_ERROR(written.status());
    return WriteMain(saving, {*written});
  }
  std::vector<uint32_t> shards =
      ShareChecksums(*store, saving.number, saving.rank, saving.world_size, written);
  if (shards.empty()) return written.status();  // the rank that failed reports it in Settle()
  return WriteMain(saving, std::move(shards));
}

// A disk may take longer than a worker may take to leave a generation that ends.
bool CheckpointWriter::AwaitWrite() {
  const GenerationEnd* end = context_.implementation().end.get();
  return write_.Await(end != nullptr ? end->over() : std::stop_token());
}

absl::Status CheckpointWriter::Wait() {
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<CheckpointId> last, Settle());
  return last.has_value() ? PruneTogether(*last) : absl::OkStatus();
}

absl::StatusOr<std::optional<CheckpointId>> CheckpointWriter::Settle() {
  if (!pending_.has_value()) return std::nullopt;
  if (!AwaitWrite()) {
    return absl::UnavailableError(absl::StrCat(
        kPeerErrorPrefix, "the generation has ended while a checkpoint was being written"));
  }
  const Pending pending = *std::exchange(pending_, std::nullopt);
  const absl::Status written = write_.Finish();
  if (pending.given_up) {
    if (!written.ok()) LogGivenUp(pending.id, written);
    return std::nullopt;
  }
  if (!pending.shards) {  // and pruned
    DDPRUN_RETURN_IF_ERROR(written);
    return std::nullopt;
  }
  DDPRUN_RETURN_IF_ERROR(AgreeOnSuccess(context_, written, "write the checkpoint"));
  DDPRUN_ASSIGN_OR_RETURN(const bool is_withheld,
                          IsWithheldAnywhere(withheld_, /*is_said=*/context_.is_main()));
  if (!is_withheld) return pending.id;
  // The next checkpoints may be withheld as well, so nothing would be pruned for long.
  if (!shard_.empty()) {
    CurrentFileCalls().Remove(absl::StrCat(directory_, "/", shard_)).IgnoreError();
  }
  return std::nullopt;
}

// ------------------------------------------------------------- generations

void CheckpointWriter::LeaveGeneration() {
  saves_ = 0;  // some may have begun none
  // Another rank may be rank 0 now. It takes the lock in its next Claim, which follows collectives
  // that this rank joins only after the release.
  if (!context_.is_main()) lock_.Release();
  // The ranks of that generation can't agree any more whether all shards were written.
  if (pending_.has_value() && pending_->shards) pending_->given_up = true;
}

}  // namespace ddprun::worker
