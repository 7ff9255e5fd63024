#include "worker/torch/session/checkpointed_parts.h"

#include <torch/types.h>

#include <cstring>
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
  Tensors state = {{kSamples, torch::tensor({get_()})}, {kPerRank, torch::tensor({per_rank_})}};
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
  return per_rank == per_rank_ ? take_(samples) : absl::OkStatus();
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

constexpr const char* kSampler = "sampler";

}  // namespace

CheckpointedState::Tensors SamplerCheckpoint::SaveState() const {
  const std::string text = get_().Serialize();
  torch::Tensor bytes = torch::empty({static_cast<int64_t>(text.size())}, torch::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return {{kSampler, bytes}};
}

absl::Status SamplerCheckpoint::RestoreState(const Tensors& state) {
  const auto found = state.find(kSampler);
  if (found == state.end() || found->second.scalar_type() != torch::kByte) {
    return absl::FailedPreconditionError("the checkpoint doesn't say where it is in its data");
  }
  const torch::Tensor bytes = found->second.contiguous();
  const std::string text(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
  DDPRUN_ASSIGN_OR_RETURN(const SamplerState parsed, SamplerState::Parse(text));
  return restore_(parsed);
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
