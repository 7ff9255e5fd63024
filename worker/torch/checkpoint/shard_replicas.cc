#include "worker/torch/checkpoint/shard_replicas.h"

#include <torch/utils.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "ddprun/exponential_moving_average.h"
#include "ddprun/parameters.h"
#include "worker/torch/checkpoint/checkpoint_exchange.h"
#include "worker/torch/collectives/group_abort.h"
#include "worker/torch/collectives/process_group.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/store/gathering_store.h"
#include "worker/torch/zero/zero_shares.h"

// How copies of shares stay one step behind the training, and never further.
//
// Goal: when up to `copies` ranks die at once, the others have a whole state, and at most one step
// that was done is lost. A copy mustn't be overwritten by the next one: if a rank died while step
// n's copies travel, some would be of step n, some of n - 1, and neither state would be whole. So
// the copies of two steps stand side by side, and the older ones go when a round is committed.
//
// Example: three ranks, one copy. "own 7" is a rank's own record after step 7, "copy 7" the one of
// another rank that it keeps.
//
//   event                a rank has                      if a rank dies now, whole is
//   Begin(7)             own 6, copy 6, own 7            6
//   passes of step 8     copy 7 arrives beside them      6 or 7
//   Commit()             all-gather; drops 6             7
//   optimizer, Begin(8)  own 7, copy 7, own 8            7
//
// Invariant: a rank drops step n - 1 after an all-gather that each rank enters only when its own
// messages are done. Hence step n is whole on the ranks when the first one drops n - 1, and n is
// whole before any optimizer begins step n + 1.
//
// Sizes: a receive must be posted with the length of the record, but a rank knows only the length
// of its own. `sizes_` is what all ranks expect: the lengths of the round before, if there was one.
// The all-gather of Commit carries the real sizes; if they differ, the round is sent again:
//
//   sizes_            rank 1's record   sent by rank 1     Commit
//   0 0 0 (unknown)   140               nothing            takes 120 140 120, sends again
//   120 120 120       140               120 zeros          takes 120 140 120, sends again
//   120 140 120       140               the record         equal: committed
//
// Zeros take the place of a record that doesn't fit, because peers have posted a receive of 120
// bytes. A real record begins with the length of its header, which isn't 0 (IsRecord).

namespace ddprun::worker {
namespace {

// Names in a record, beside "optimizer.…" and those of a checkpoint.
constexpr const char* kParametersPrefix = "shares.";
constexpr const char* kGenerators = "generators";
constexpr const char* kProgressKey = "progress";
constexpr int kTag = 0;  // one is enough: a round begins when the one before is committed
// How long all transfers together may take after the end of their generation. A message that hasn't
// arrived then is about to fail; this bounds the wait for one that doesn't.
constexpr absl::Duration kSettleTime = absl::Seconds(1);

bool IsRecord(const torch::Tensor& bytes) {
  uint64_t length = 0;
  if (bytes.nbytes() < sizeof(length)) return false;
  std::memcpy(&length, bytes.const_data_ptr(), sizeof(length));
  return length != 0;
}

absl::string_view BytesOf(const torch::Tensor& record) {
  return {static_cast<const char*>(record.const_data_ptr()), record.nbytes()};
}

}  // namespace

ShardReplicas::ShardReplicas(Context& context, ShardedTraining training, uint32_t copies)
    : context_(context), training_(std::move(training)), copies_(copies) {}

ShardReplicas::~ShardReplicas() {
  transfers_.clear();
  LeaveConnections();
}

void ShardReplicas::LeaveConnections() {
  if (connecting_.valid()) links_ = connecting_.get().value_or(nullptr);
  if (links_) GroupAbort::DestroyBeside(std::move(links_));
}

RecordKey ShardReplicas::OwnKey(int64_t step) const {
  return {.generation = context_.generation(),
          .world_size = context_.world_size(),
          .step = step,
          .shard = context_.rank()};
}

void ShardReplicas::ConnectBeside(const std::vector<uint32_t>& hosts) {
  holders_.clear();
  kept_for_.clear();
  if (context_.world_size() == 1 || copies_ == 0) return;
  const std::vector<std::vector<uint32_t>> holders = ChooseHolders(hosts, copies_);
  holders_ = holders[context_.rank()];
  for (uint32_t rank = 0; rank < holders.size(); ++rank) {
    const auto& of_rank = holders[rank];
    if (std::count(of_rank.begin(), of_rank.end(), context_.rank()) > 0) kept_for_.push_back(rank);
  }
  const Context::Implementation& place = context_.implementation();
  const auto store = c10::make_intrusive<StorePart>(
      place.starts > 1 ? absl::StrCat("replicas/", place.starts) : "replicas", place.store);
  connecting_ = std::async(std::launch::async,
                           [store, plan = place.plan] { return CreateMessageGroup(store, plan); });
}

absl::StatusOr<torch::Tensor> ShardReplicas::Pack(const TrainingProgress& progress) {
  const torch::NoGradGuard no_grad;
  CheckpointTensors tensors;
  DDPRUN_ASSIGN_OR_RETURN(const ZeroState state, training_.zero.ShardedState());
  AddTensors(kOptimizerPrefix, state, tensors);
  AddTensors(kParametersPrefix, ShardedParameters(training_.zero.implementation()), tensors);
  if (training_.average != nullptr) {
    AddTensors(kParametersPrefix, training_.average->OwnShare(), tensors);
  }
  for (const NamedTensor& buffer : NamedBuffers(training_.module)) {
    tensors[kModelPrefix + buffer.name] = buffer.tensor;
  }
  for (const auto& [name, extra] : training_.extras) {
    AddTensors(ExtraPrefix(name), extra->SaveState(), tensors);
  }
  tensors[kGenerators] = GetGenerators(context_.device());
  tensors[kProgressKey] = torch::tensor({progress.step, progress.epoch, progress.epoch_samples});
  std::vector<torch::Tensor> kept;
  DDPRUN_ASSIGN_OR_RETURN(const TensorFile file, ToTensorFile(tensors, kept));
  const std::string header = EncodePlainTensorFileHeader(file);
  size_t size = header.size();
  for (const TensorEntry& entry : file.tensors) size += entry.bytes.size();
  torch::Tensor bytes = TakeMemory(static_cast<int64_t>(size));
  auto* to = static_cast<char*>(bytes.mutable_data_ptr());
  to = std::copy(header.begin(), header.end(), to);
  for (const TensorEntry& entry : file.tensors) {
    to = std::copy(entry.bytes.begin(), entry.bytes.end(), to);
  }
  return bytes;
}

torch::Tensor ShardReplicas::TakeMemory(int64_t bytes) {
  const auto found = std::find_if(spare_.begin(), spare_.end(),
                                  [&](const auto& memory) { return memory.numel() == bytes; });
  if (found == spare_.end()) return torch::empty({bytes}, torch::kByte);
  torch::Tensor memory = std::move(*found);
  spare_.erase(found);
  return memory;
}

void ShardReplicas::GiveBack(torch::Tensor memory) {
  if (spare_.size() > kept_for_.size()) spare_.erase(spare_.begin());
  spare_.push_back(std::move(memory));
}

absl::Status ShardReplicas::Begin(const TrainingProgress& progress) {
  DDPRUN_CHECK(!round_.has_value(), "a second Begin before Commit");
  if (connecting_.valid()) {
    DDPRUN_ASSIGN_OR_RETURN(links_, connecting_.get());
  }
  return CatchExceptions([&]() -> absl::Status {
    DDPRUN_ASSIGN_OR_RETURN(torch::Tensor bytes, Pack(progress));
    RecordKey key = OwnKey(progress.step);
    key.bytes = bytes.numel();
    round_ = Record{.key = key, .bytes = std::move(bytes)};
    records_.push_back(*round_);
    Exchange();
    return absl::OkStatus();
  });
}

void ShardReplicas::Exchange() {
  for (const uint32_t origin : kept_for_) {
    if (sizes_[origin] == 0) continue;
    Record record = *round_;
    record.key.shard = origin;
    record.key.bytes = sizes_[origin];
    record.bytes = TakeMemory(sizes_[origin]);
    std::vector<torch::Tensor> tensors = {record.bytes};
    auto work = links_->recv(tensors, static_cast<int>(origin), kTag);
    transfers_.push_back({.record = std::move(record), .arrives = true, .work = std::move(work)});
  }
  const int64_t size = sizes_[context_.rank()];
  if (size == 0) return;
  const bool fits = round_->bytes.numel() == size;
  std::vector<torch::Tensor> tensors = {fits ? round_->bytes : torch::zeros({size}, torch::kByte)};
  for (const uint32_t holder : holders_) {
    auto work = links_->send(tensors, static_cast<int>(holder), kTag);
    transfers_.push_back({.record = {.key = round_->key, .bytes = tensors[0]},
                          .arrives = false,
                          .work = std::move(work)});
  }
}

absl::Status ShardReplicas::AwaitTransfers() {
  // Without a timeout of its own a message waits for as long as a connection may take.
  const auto timeout =
      absl::ToChronoMilliseconds(context_.implementation().plan.collective_timeout);
  for (Transfer& transfer : transfers_) {
    const auto work = std::exchange(transfer.work, nullptr);
    if (!work->wait(timeout)) throw PeerFailure("a copy of a share was given up");
    if (transfer.arrives && IsRecord(transfer.record.bytes)) records_.push_back(transfer.record);
  }
  transfers_.clear();
  return absl::OkStatus();
}

absl::Status ShardReplicas::Commit() {
  if (!round_.has_value()) return absl::OkStatus();
  return CatchExceptions([&]() -> absl::Status {
    while (links_) {
      DDPRUN_RETURN_IF_ERROR(AwaitTransfers());
      DDPRUN_ASSIGN_OR_RETURN(std::vector<int64_t> sizes,
                              GatherNumber(context_, round_->bytes.numel()));
      if (sizes == sizes_) break;
      sizes_ = std::move(sizes);
      records_.erase(std::remove_if(records_.begin(), records_.end(),
                                    [&](const Record& record) {
                                      return record.key.SameState(round_->key) &&
                                             record.key != round_->key;
                                    }),
                     records_.end());
      Exchange();
    }
    KeepOnly(round_->key);
    round_.reset();
    return absl::OkStatus();
  });
}

void ShardReplicas::KeepOnly(const RecordKey& state) {
  std::vector<Record> all = std::exchange(records_, {});
  for (Record& record : all) {
    if (record.key.SameState(state)) {
      records_.push_back(std::move(record));
    } else {
      GiveBack(std::move(record.bytes));
    }
  }
}

void ShardReplicas::Settle() {
  const Instant end = MonotonicNow() + kSettleTime;
  const auto has_arrived = [end](c10d::Work& work) {
    const absl::Duration left = std::max(end - MonotonicNow(), absl::Milliseconds(1));
    return work.wait(absl::ToChronoMilliseconds(left));
  };
  for (Transfer& transfer : transfers_) {
    if (!transfer.arrives || transfer.work == nullptr) continue;
    const absl::Status done = CatchExceptions([&]() -> absl::Status {
      // The first wait may end because the group was aborted, not because of the message.
      if (has_arrived(*transfer.work) || has_arrived(*transfer.work)) return absl::OkStatus();
      return absl::UnavailableError("given up");
    });
    if (done.ok() && IsRecord(transfer.record.bytes)) records_.push_back(transfer.record);
  }
  transfers_.clear();
  round_.reset();
  LeaveConnections();
}

std::vector<RecordKey> ShardReplicas::Records() {
  Settle();
  std::vector<RecordKey> keys;
  for (const Record& record : records_) keys.push_back(record.key);
  return keys;
}

absl::StatusOr<std::optional<TrainingProgress>> ShardReplicas::TakeBack(
    const std::vector<std::vector<RecordKey>>& records) {
  return CatchExceptions([&]() -> absl::StatusOr<std::optional<TrainingProgress>> {
    sizes_.assign(context_.world_size(), 0);
    const std::optional<RecoveryPoint> point = ChooseRecoveryPoint(records);
    const auto is_over = [&](const Record& record) {
      return !point.has_value() ||
             (!record.key.SameState(point->state) && record.key.step >= point->state.step);
    };
    records_.erase(std::remove_if(records_.begin(), records_.end(), is_over), records_.end());
    if (!point.has_value()) return std::optional<TrainingProgress>();
    Parts parts;
    for (uint32_t shard = 0; shard < point->sources.size(); ++shard) {
      DDPRUN_RETURN_IF_ERROR(Move(*point, shard, parts));
    }
    // Shares of the same number of ranks have the same length as before, so the first round needn't
    // be sent twice.
    if (point->state.world_size == context_.world_size()) sizes_ = point->bytes;
    const bool some_are_new = std::any_of(records.begin(), records.end(),
                                          [](const auto& of_rank) { return of_rank.empty(); });
    if (some_are_new) DDPRUN_RETURN_IF_ERROR(SendUntrained(point->sources[0]));
    DDPRUN_ASSIGN_OR_RETURN(const TrainingProgress progress,
                            Apply(parts, context_.rank() < point->state.world_size));
    return std::optional<TrainingProgress>(progress);
  });
}

// Brings a shard from the rank that has it to the ranks that need it. With as many ranks as before,
// that is the rank of the shard's number, and nothing travels if it has its shard still. Otherwise
// all ranks need all shards, because shares are cut elsewhere:
//
//   2 ranks before   [ shard 0        | shard 1        ]
//   3 ranks now      [ rank 0   | rank 1    | rank 2   ]
//
// A broadcast is used for both: a collective that each rank joins, in the order of the shards.
absl::Status ShardReplicas::Move(const RecoveryPoint& point, uint32_t shard, Parts& parts) {
  const bool same_ranks = point.state.world_size == context_.world_size();
  const uint32_t source = point.sources[shard];
  torch::Tensor bytes;
  if (context_.rank() == source) {
    const auto found = std::find_if(records_.begin(), records_.end(), [&](const Record& record) {
      return record.key.SameState(point.state) && record.key.shard == shard;
    });
    bytes = found->bytes;
  }
  if (!same_ranks || source != shard) {
    const bool sends = context_.rank() == source;
    torch::Tensor travelling =
        sends ? bytes.to(context_.device())
              : torch::empty({point.bytes[shard]},
                             torch::TensorOptions(torch::kByte).device(context_.device()));
    DDPRUN_RETURN_IF_ERROR(context_.Broadcast(travelling, source));
    if (!sends) bytes = travelling.cpu();
  }
  if (same_ranks && shard != context_.rank()) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(const TensorFile file,
                          DecodeTensorFile(BytesOf(bytes), TensorFileCheck::kLength));
  const CheckpointTensors tensors = FromTensorFile(file, std::make_shared<torch::Tensor>(bytes));
  Take(tensors, same_ranks, shard == 0, parts);
  // Generators go by the rank's number, as when a checkpoint of more or fewer ranks is loaded.
  if (shard == context_.rank()) parts.others[kGenerators] = tensors.at(kGenerators).clone();
  return absl::OkStatus();
}

void ShardReplicas::Take(const CheckpointTensors& tensors, bool is_whole_share, bool is_first,
                         Parts& parts) {
  const auto take = [&](const char* prefix, CheckpointTensors& to) {
    CheckpointTensors state = TensorsWithPrefix(tensors, prefix);
    if (!is_whole_share) {
      state = training_.zero.OwnPart(state);
      // A view would keep the memory of the whole shard.
      for (auto& [name, tensor] : state) tensor = tensor.clone();
    }
    AddTensors("", state, to);
  };
  take(kOptimizerPrefix, parts.optimizer);
  take(kParametersPrefix, parts.parameters);
  if (is_whole_share || is_first) parts.others = tensors;
}

absl::Status ShardReplicas::SendUntrained(uint32_t source) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : UntrainedParameters(training_.zero.implementation())) {
    torch::Tensor sent = parameter.detach().contiguous();
    DDPRUN_RETURN_IF_ERROR(context_.Broadcast(sent, source));
    parameter.copy_(sent);
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainingProgress> ShardReplicas::Apply(const Parts& parts, bool has_generators) {
  const torch::NoGradGuard no_grad;
  DDPRUN_RETURN_IF_ERROR(training_.zero.RestoreState(parts.optimizer));
  DDPRUN_RETURN_IF_ERROR(RestoreParameters(training_.zero.implementation(), parts.parameters));
  if (training_.average != nullptr) {
    DDPRUN_RETURN_IF_ERROR(training_.average->RestoreShare(parts.parameters));
  }
  for (const NamedTensor& buffer : NamedBuffers(training_.module)) {
    const auto found = parts.others.find(kModelPrefix + buffer.name);
    if (found == parts.others.end() || found->second.sizes() != buffer.tensor.sizes()) {
      return absl::FailedPreconditionError(
          absl::StrCat("other ranks' models have no buffer '", buffer.name, "' of that shape"));
    }
    buffer.tensor.detach().copy_(found->second);
  }
  for (const auto& [name, extra] : training_.extras) {
    CheckpointTensors state = TensorsWithPrefix(parts.others, ExtraPrefix(name));
    for (auto& [key, tensor] : state) tensor = tensor.clone();  // the extra may keep them
    DDPRUN_RETURN_IF_ERROR(extra->RestoreState(state));
  }
  const auto* numbers = parts.others.at(kProgressKey).const_data_ptr<int64_t>();
  const TrainingProgress progress = {
      .step = numbers[0], .epoch = numbers[1], .epoch_samples = numbers[2]};
  if (has_generators) {
    DDPRUN_RETURN_IF_ERROR(SetGenerators(context_.device(), parts.others.at(kGenerators)));
  } else {
    SeedGenerators(context_.device(), /*seed=*/0, progress.step, context_.rank());
  }
  return progress;
}

}  // namespace ddprun::worker
