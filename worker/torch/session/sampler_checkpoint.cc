#include "worker/torch/session/sampler_checkpoint.h"

#include <torch/types.h>

#include <cstring>
#include <string>

#include "base/status_macros.h"

namespace ddprun::worker {
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

}  // namespace ddprun::worker
