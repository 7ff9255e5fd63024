#include "worker/torch/session/batch_checkpoint.h"

#include <torch/types.h>

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

}  // namespace ddprun::worker
