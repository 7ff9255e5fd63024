#include "worker/torch/zero/zero_shares.h"

#include <ATen/ops/empty.h>
#include <torch/utils.h>

#include <set>

#include "base/status_macros.h"
#include "ddprun/parameters.h"
#include "worker/torch/collectives/single_tensor_collectives.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/zero/zero_state.h"

namespace ddprun::worker {
namespace {

constexpr const char* kParameter = "parameter";

ZeroStateName NameOf(const ZeroImplementation& zero, const ZeroPiece& piece,
                     const std::string& field) {
  return {.parameter = zero.storage->parameters()[piece.parameter].number,
          .field = field,
          .begin = piece.begin};
}

}  // namespace

ZeroState NamePieces(const ZeroImplementation& zero, const std::string& field,
                     const std::vector<torch::Tensor>& tensors) {
  ZeroState parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const ZeroPiece& piece = zero.storage->pieces()[i].piece;
    parts[NameOf(zero, piece, field).ToText()] = tensors[i].detach().cpu();
  }
  return parts;
}

absl::StatusOr<std::vector<torch::Tensor>> CutPieces(const ZeroImplementation& zero,
                                                     const std::string& field,
                                                     const ZeroState& parts) {
  std::vector<torch::Tensor> tensors;
  for (const ZeroPieceTensor& piece : zero.storage->pieces()) {
    DDPRUN_ASSIGN_OR_RETURN(const torch::Tensor values,
                            CutOut(parts, NameOf(zero, piece.piece, field), piece.piece.length));
    tensors.push_back(values.to(piece.tensor.device()));
  }
  return tensors;
}

void BeforeSharesChange(ZeroImplementation& zero) {
  if (zero.gatherer.has_value()) zero.gatherer->Forget();
}

void PublishShares(ZeroImplementation& zero) {
  zero.storage->PublishShares();
  if (zero.gatherer.has_value()) {
    zero.gatherer->Renew();
  } else {
    zero.GatherParameters();
  }
}

void RenewCopies(ZeroImplementation& zero) {
  // In stage 3 the operators that changed them have done so (ZeroGatherer::AfterWrite).
  if (!zero.gatherer.has_value()) zero.storage->RenewCopies();
}

ZeroState GatherShares(const ZeroImplementation& zero, uint32_t target,
                       const std::function<torch::Tensor(size_t bucket)>& share_of) {
  ZeroState state;
  for (size_t i = 0; i < zero.storage->buckets().size(); ++i) {
    const ZeroBucket& bucket = zero.storage->buckets()[i];
    torch::Tensor share = share_of(i).to(zero.device);
    torch::Tensor all = at::empty(bucket.parameters.sizes(), share.options());
    AllGatherTensor(*zero.group, all, share)->wait();
    if (zero.storage->rank() != target) continue;
    const torch::Tensor flat = all.cpu();
    for (const ZeroSlot& slot : bucket.layout.slots) {
      const ZeroParameter& parameter = zero.storage->parameters()[slot.parameter];
      state[parameter.name] =
          flat.narrow(0, slot.begin, slot.length).view(parameter.tensor.sizes());
    }
  }
  const absl::Status gathered = zero.AwaitGroup();
  if (!gathered.ok()) std::rethrow_exception(ToException(gathered));
  return state;
}

ZeroState ShardedParameters(const ZeroImplementation& zero) {
  std::vector<torch::Tensor> tensors;
  for (const ZeroPieceTensor& piece : zero.storage->pieces()) tensors.push_back(piece.tensor);
  return NamePieces(zero, kParameter, tensors);
}

absl::Status RestoreParameters(ZeroImplementation& zero, const ZeroState& parts) {
  const torch::NoGradGuard no_grad;
  BeforeSharesChange(zero);
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<torch::Tensor> values,
                          CutPieces(zero, kParameter, parts));
  for (size_t i = 0; i < values.size(); ++i) zero.storage->pieces()[i].tensor.copy_(values[i]);
  PublishShares(zero);
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
