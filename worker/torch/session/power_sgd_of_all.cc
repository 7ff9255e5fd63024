#include "worker/torch/session/power_sgd_of_all.h"

#include <torch/types.h>

#include "absl/strings/match.h"

namespace ddprun::worker {
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
