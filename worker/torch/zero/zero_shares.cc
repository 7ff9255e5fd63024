#include "worker/torch/zero/zero_shares.h"

#include <torch/utils.h>

#include <set>

#include "base/status_macros.h"
#include "ddprun/parameters.h"
#include "worker/torch/zero/zero_state.h"

namespace ddprun::worker {
namespace {

constexpr const char* kParameter = "parameter";

ZeroStateName NameOf(const ZeroImplementation& zero, const ZeroPiece& piece) {
  return {.parameter = zero.storage->parameters()[piece.parameter].number,
          .field = kParameter,
          .begin = piece.begin};
}

}  // namespace

ZeroState ShardedParameters(const ZeroImplementation& zero) {
  ZeroState parts;
  for (const ZeroPieceTensor& piece : zero.storage->pieces()) {
    parts[NameOf(zero, piece.piece).ToText()] = piece.tensor.detach().cpu();
  }
  return parts;
}

absl::Status RestoreParameters(ZeroImplementation& zero, const ZeroState& parts) {
  const torch::NoGradGuard no_grad;
  if (zero.gatherer.has_value()) zero.gatherer->Forget();
  for (ZeroPieceTensor& piece : zero.storage->pieces()) {
    DDPRUN_ASSIGN_OR_RETURN(const torch::Tensor values,
                            CutOut(parts, NameOf(zero, piece.piece), piece.piece.length));
    piece.tensor.copy_(values);
  }
  zero.storage->PublishShares();
  if (zero.gatherer.has_value()) {
    zero.gatherer->Renew();
  } else {
    zero.GatherParameters();
  }
  return absl::OkStatus();
}

std::vector<torch::Tensor> UntrainedParameters(const ZeroImplementation& zero) {
  std::set<const void*> trained;
  for (const ZeroParameter& parameter : zero.storage->parameters()) {
    trained.insert(parameter.tensor.unsafeGetTensorImpl());
  }
  std::vector<torch::Tensor> others;
  for (const torch::Tensor& parameter : Parameters(*zero.module)) {
    if (!trained.contains(parameter.unsafeGetTensorImpl())) others.push_back(parameter);
  }
  return others;
}

}  // namespace ddprun::worker
