#include "worker/torch/session/checkpointed_parts.h"

#include <torch/types.h>

#include <string>

#include "absl/strings/match.h"
#include "base/status_macros.h"

namespace ddprun::worker {
namespace {

constexpr const char* kSamples = "samples";
constexpr const char* kPerRank = "per_rank";
constexpr const char* kFinished = "finished";
constexpr const char* kEvaluated = "evaluated";

// 0: there is none.
int64_t NumberOf(const CheckpointedState::Tensors& state, const char* name) {
  const auto found = state.find(name);
  if (found == state.end() || found->second.scalar_type() != torch::kLong ||
      found->second.numel() != 1) {
    return 0;
  }
  return found->second.item<int64_t>();
}

}  // namespace

CheckpointedState::Tensors BatchCheckpoint::SaveState() const {
  Tensors state = {{kSamples, torch::tensor({feed_.GlobalBatch()})},
                   {kPerRank, torch::tensor({feed_.BatchPerRank()})}};
  if (marks_.is_finished) state[kFinished] = torch::tensor({int64_t{1}});
  if (marks_.evaluated_step > 0) state[kEvaluated] = torch::tensor({marks_.evaluated_step});
  return state;
}

absl::Status BatchCheckpoint::RestoreState(const Tensors& state) {
  const int64_t samples = NumberOf(state, kSamples);
  const int64_t per_rank = NumberOf(state, kPerRank);
  if (samples < 1 || per_rank < 1) {
    return absl::FailedPreconditionError("the checkpoint doesn't say what a step learns from");
  }
  marks_.is_finished = NumberOf(state, kFinished) == 1;
  marks_.evaluated_step = state.contains(kEvaluated) ? NumberOf(state, kEvaluated) : -1;
  if (per_rank != feed_.BatchPerRank()) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(const bool is_new, feed_.TakeGlobalBatch(samples));
  return is_new ? on_change_() : absl::OkStatus();
}

absl::Status BucketsCheckpoint::Apply() {
  if (kept_.empty() || ddp_ == nullptr) return absl::OkStatus();
  return ddp_->buckets().RestoreState(kept_);
}

absl::Status BucketsCheckpoint::RestoreState(const Tensors& state) {
  kept_ = state;
  return Apply();
}

namespace {

bool IsError(const std::string& name) { return absl::EndsWith(name, ".error"); }

}  // namespace

CheckpointedState::Tensors PowerSgdOfAll::SaveState() const {
  Tensors state = hook_.SaveState();
  std::erase_if(state, [](const auto& item) { return IsError(item.first); });
  return state;
}

CheckpointedState::Tensors KeepPowerSgd(const PowerSgd& hook) {
  CheckpointedState::Tensors state = hook.SaveState();
  for (auto& [name, tensor] : state) {
    if (!IsError(name)) tensor = tensor.clone();
  }
  return state;
}

}  // namespace ddprun::worker
