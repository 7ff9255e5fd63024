#include "worker/torch/checkpoint/checkpointed_training.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "ddprun/exponential_moving_average.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/context/compare_texts.h"
#include "worker/torch/optim/optimizer_state.h"
#include "worker/torch/store/meeting.h"
#include "worker/torch/zero/zero_state.h"

namespace ddprun::worker {
namespace {

// A number as such; "Float [4, 8], bits 0123456789abcdef".
std::string ValueText(const torch::Tensor& tensor) {
  const torch::Tensor plain = tensor.detach().cpu().contiguous();
  if (plain.numel() == 1 && at::isIntegralType(plain.scalar_type(), /*includeBool=*/true)) {
    return absl::StrCat(plain.item<int64_t>());
  }
  if (plain.numel() == 1 && at::isFloatingType(plain.scalar_type())) {
    return absl::StrFormat("%.17g", plain.item<double>());
  }
  const absl::string_view bytes(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  return absl::StrCat(torch::toString(plain.scalar_type()), " [",
                      absl::StrJoin(plain.sizes(), ", "), "], bits ",
                      absl::StrFormat("%016x", HashOf(bytes)));
}

constexpr int64_t kDigestBytes = sizeof(uint64_t);

// Not 0, which is no digest.
uint64_t DigestOf(const std::vector<std::string>& texts) {
  return HashOf(absl::StrJoin(texts, "\n")) | 1;
}

// `bytes`, U8, and a digest behind them.
torch::Tensor WithDigest(const torch::Tensor& bytes, uint64_t digest) {
  torch::Tensor tail = torch::empty({kDigestBytes}, torch::kByte);
  std::memcpy(tail.mutable_data_ptr(), &digest, sizeof(digest));
  return torch::cat({bytes.cpu(), tail});
}

// Takes the digests off again. Returns whether all ranks have one and they differ; the same on all
// ranks. (A new rank has made fewer saves.)
bool TakeDigests(std::vector<torch::Tensor>& all) {
  std::set<uint64_t> digests;
  for (torch::Tensor& one : all) {
    const torch::Tensor tail = one.slice(0, -kDigestBytes).cpu();
    uint64_t digest = 0;
    std::memcpy(&digest, tail.const_data_ptr(), sizeof(digest));
    digests.insert(digest);
    one = one.slice(0, 0, one.numel() - kDigestBytes);
  }
  return digests.size() > 1 && !digests.contains(0);
}

}  // namespace

CheckpointedTraining::CheckpointedTraining(Context& context,
                                           std::shared_ptr<torch::nn::Module> module,
                                           torch::optim::Optimizer& optimizer, bool sharded)
    : context_(context),
      module_(std::move(module)),
      optimizer_(optimizer),
      sharded_(sharded),
      watch_(*module_, optimizer_) {}

void CheckpointedTraining::Add(std::string name, CheckpointedState& state) {
  DDPRUN_CHECK(!name.empty() && !absl::StrContains(name, '.'),
               absl::StrCat("'", name, "' can't name a state of a checkpoint"));
  extras_.push_back({std::move(name), state});
}

std::vector<std::string> CheckpointedTraining::ExtraTexts() const {
  std::vector<std::string> texts;
  if (context_.world_size() == 1) return texts;
  for (const Extra& extra : extras_) {
    if (extra.state.differs_by_rank()) continue;
    for (const auto& [name, tensor] : extra.state.SaveState()) {
      texts.push_back(absl::StrCat(extra.name, ".", name, " ", ValueText(tensor)));
    }
  }
  return texts;
}

absl::Status CheckpointedTraining::NotifyOfDifference(const std::vector<std::string>& texts) const {
  const absl::Status alike = CompareTexts(
      context_, texts, "a state of the checkpoints",
      "a checkpoint keeps rank 0's, and a run that goes on, or a new worker, gets that one. Keep "
      "what all ranks have alike: the values of all ranks in one tensor (AllGather), or, in a "
      "Checkpointer, a class with differs_by_rank()");
  if (!absl::IsInvalidArgument(alike)) return alike;
  if (context_.is_main() && !std::exchange(has_notified_, true)) {
    Notify(std::string(alike.message()));
  }
  return absl::OkStatus();
}

ZeroOptimizer* CheckpointedTraining::zero() const {
  return dynamic_cast<ZeroOptimizer*>(&optimizer_);
}

// ------------------------------------------------------------- taken from it

bool CheckpointedTraining::HasShards() const {
  return (sharded_ && zero() != nullptr) ||
         std::any_of(extras_.begin(), extras_.end(),
                     [](const Extra& extra) { return extra.state.differs_by_rank(); });
}

absl::StatusOr<CheckpointTensors> CheckpointedTraining::OptimizerState() const {
  if (zero() == nullptr) {
    if (!context_.is_main()) return CheckpointTensors{};
    return GetOptimizerState(optimizer_);
  }
  if (sharded_) return CheckpointTensors{};
  return zero()->ConsolidatedState(/*target=*/0);
}

absl::StatusOr<CheckpointTensors> CheckpointedTraining::SharedOutParameters() const {
  if (zero() == nullptr) return CheckpointTensors{};
  return zero()->SharedOutParameters(/*target=*/0);
}

absl::StatusOr<CheckpointTensors> CheckpointedTraining::MainTensors(
    const TrainingProgress& progress) const {
  // The states may be large: the 1st, 2nd, 4th, 8th … save compares them. The digest travels with
  // the generators, as a collective of its own would cost more.
  const bool compares = std::has_single_bit(++saves_);
  const std::vector<std::string> texts = compares ? ExtraTexts() : std::vector<std::string>();
  const torch::Tensor generators =
      WithDigest(GetGenerators(context_.device()), compares ? DigestOf(texts) : 0);
  DDPRUN_ASSIGN_OR_RETURN(std::vector<torch::Tensor> all,
                          context_.AllGather(generators.to(context_.device())));
  if (TakeDigests(all)) DDPRUN_RETURN_IF_ERROR(NotifyOfDifference(texts));
  DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors optimizer_state, OptimizerState());
  DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors parameters, SharedOutParameters());
  CheckpointTensors averages;
  if (average_ != nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(averages, average_->Whole(/*target=*/0));
  }
  CheckpointTensors tensors;
  if (!context_.is_main()) return tensors;
  tensors = CollectTensors(*module_, progress);
  AddAverages(averages, *module_, tensors);
  AddTensors(kModelPrefix, parameters, tensors);
  AddTensors(kOptimizerPrefix, optimizer_state, tensors);
  for (const Extra& extra : extras_) {
    if (extra.state.differs_by_rank()) continue;
    AddTensors(ExtraPrefix(extra.name), extra.state.SaveState(), tensors);
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    tensors[absl::StrCat("generators.", rank)] = all[rank];
  }
  return tensors;
}

absl::StatusOr<CheckpointTensors> CheckpointedTraining::ShardTensors() const {
  CheckpointTensors tensors;
  if (sharded_ && zero() != nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors state, zero()->ShardedState());
    AddTensors(kOptimizerPrefix, state, tensors);
  }
  for (const Extra& extra : extras_) {
    if (!extra.state.differs_by_rank()) continue;
    AddTensors(ExtraPrefix(extra.name), extra.state.SaveState(), tensors);
  }
  return tensors;
}

// ------------------------------------------------------------- put back

bool CheckpointedTraining::Suffices(const CheckpointTensors& all,
                                    const CheckpointTensors& own) const {
  CheckpointTensors state = TensorsWithPrefix(all, kOptimizerPrefix);
  AddTensors("", TensorsWithPrefix(own, kOptimizerPrefix), state);
  if (zero() != nullptr) return zero()->Covers(state);
  return std::none_of(state.begin(), state.end(), [](const auto& item) {
    const auto name = ZeroStateName::Parse(item.first);
    return name.has_value() && name->begin >= 0;
  });
}

void CheckpointedTraining::TakeOfShard(uint32_t shard, size_t shards,
                                       const CheckpointTensors& stored,
                                       CheckpointTensors& tensors) const {
  CheckpointTensors state = TensorsWithPrefix(stored, kOptimizerPrefix);
  if (zero() != nullptr) state = zero()->OwnPart(state);
  // A view would keep the memory of the whole shard.
  for (auto& [name, tensor] : state) tensor = tensor.clone();
  AddTensors(kOptimizerPrefix, state, tensors);
  if (shards != context_.world_size() || shard != context_.rank()) return;
  for (const Extra& extra : extras_) {
    const std::string prefix = ExtraPrefix(extra.name);
    AddTensors(prefix, TensorsWithPrefix(stored, prefix), tensors);
  }
}

absl::StatusOr<TrainingProgress> CheckpointedTraining::Apply(
    const CheckpointTensors& tensors) const {
  DDPRUN_ASSIGN_OR_RETURN(const TrainingProgress progress,
                          ApplyTensors(tensors, *module_, optimizer_));
  if (average_ != nullptr) {
    DDPRUN_RETURN_IF_ERROR(ApplyAverages(tensors, context_.is_main(), *average_));
  }
  for (const Extra& extra : extras_) DDPRUN_RETURN_IF_ERROR(ApplyExtra(extra, tensors));
  if (context_.is_main()) WarnOfUnusedExtras(tensors);
  DDPRUN_RETURN_IF_ERROR(
      RestoreGenerators(tensors, context_.device(), progress.step, context_.rank()));
  return progress;
}

absl::Status CheckpointedTraining::ApplyExtra(const Extra& extra,
                                              const CheckpointTensors& tensors) const {
  CheckpointTensors state = TensorsWithPrefix(tensors, ExtraPrefix(extra.name));
  if (state.empty()) {
    if (extra.state.SaveState().empty()) return absl::OkStatus();  // at its beginning already
    Log(LogLevel::kWarning,
        absl::StrCat("the checkpoint has no '", extra.name, "' for rank ", context_.rank(), " of ",
                     context_.world_size(), "; it begins anew"));
    return absl::OkStatus();
  }
  for (auto& [name, tensor] : state) tensor = tensor.clone();  // the extra may keep them
  return extra.state.RestoreState(state);
}

void CheckpointedTraining::WarnOfUnusedExtras(const CheckpointTensors& tensors) const {
  std::set<std::string> unused;
  for (const auto& [name, tensor] : TensorsWithPrefix(tensors, kExtraPrefix)) {
    unused.insert(name.substr(0, name.find('.')));
  }
  for (const Extra& extra : extras_) unused.erase(extra.name);
  // DistributedDataParallel's, which another --zero_stage has no use for.
  std::erase_if(unused, [](const std::string& name) { return absl::StartsWith(name, "buckets"); });
  for (const std::string& name : unused) {
    Log(LogLevel::kWarning, absl::StrCat("the checkpoint has the state '", name,
                                         "', which this program doesn't: training goes on without "
                                         "it"));
  }
}

}  // namespace ddprun::worker
