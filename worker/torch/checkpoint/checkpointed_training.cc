#include "worker/torch/checkpoint/checkpointed_training.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "ddprun/exponential_moving_average.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/optim/optimizer_state.h"
#include "worker/torch/zero/zero_state.h"

namespace ddprun::worker {

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
  const torch::Tensor generators = GetGenerators(context_.device()).to(context_.device());
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<torch::Tensor> all, context_.AllGather(generators));
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

}  // namespace ddprun::worker
