#include "worker/torch/checkpoint/peer_state.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "ddprun/exponential_moving_average.h"
#include "ddprun/parameters.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/optim/optimizer_state.h"

namespace ddprun::worker {
namespace {

using Version = std::optional<StateVersion>;

// The lowest rank that has the newest state. The end of an epoch is further than the same step
// before it. If a step was done twice, the second time counts, because training has gone on from
// there.
uint32_t Furthest(const std::vector<Version>& all) {
  const auto place = [](const Version& one) {
    if (!one.has_value()) {
      return std::make_tuple(false, int64_t{0}, int64_t{0}, uint64_t{0}, int64_t{0});
    }
    return std::make_tuple(true, one->progress.step, one->progress.epoch, one->generation,
                           one->marks);
  };
  const auto found = std::max_element(
      all.begin(), all.end(),
      [&](const Version& one, const Version& other) { return place(one) < place(other); });
  return static_cast<uint32_t>(found - all.begin());
}

TransferWatch& Watch() {
  static auto* watch = new TransferWatch();
  return *watch;
}

}  // namespace

void WatchTransfers(TransferWatch watch) { Watch() = std::move(watch); }

void NotifyTransferWatch(bool gives, size_t message, size_t messages) {
  if (Watch() != nullptr) Watch()(gives, message, messages);
}

bool KnownStates::AllHaveIt() const {
  return std::all_of(versions.begin(), versions.end(),
                     [this](const Version& one) { return one == newest; });
}

KnownStates CompareOffers(const std::vector<StateOffer>& offers) {
  KnownStates known;
  for (const StateOffer& offer : offers) known.versions.push_back(offer.version);
  known.leader = Furthest(known.versions);
  const StateOffer& newest = offers[known.leader];
  known.newest = newest.version;
  known.bytes = newest.bytes;
  known.step_time = newest.step_time;
  return known;
}

int64_t StateBytes(const ReplicatedState& state) {
  const absl::StatusOr<CheckpointTensors> tensors = LastingTensors(state);
  int64_t bytes = 0;
  if (!tensors.ok()) return bytes;  // the rank that sends the state reports why
  for (const auto& [name, tensor] : *tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

absl::StatusOr<CheckpointTensors> LastingTensors(const ReplicatedState& state) {
  CheckpointTensors tensors;
  for (const NamedTensor& parameter : NamedParameters(state.module)) {
    tensors[kModelPrefix + parameter.name] = parameter.tensor;
  }
  DDPRUN_ASSIGN_OR_RETURN(const OptimizerTensors of_optimizer, GetOptimizerState(state.optimizer));
  AddTensors(kOptimizerPrefix, of_optimizer, tensors);
  if (state.average == nullptr) return tensors;
  DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors averages, state.average->Whole(/*target=*/0));
  AddTensors(kAveragePrefix, averages, tensors);
  return tensors;
}

CheckpointTensors PassingTensors(const ReplicatedState& state, const TrainingProgress& progress) {
  CheckpointTensors tensors = CollectTensors(state.module, progress);
  for (const NamedTensor& parameter : NamedParameters(state.module)) {
    tensors.erase(kModelPrefix + parameter.name);
  }
  for (const auto& [name, extra] : state.extras) {
    AddTensors(ExtraPrefix(name), extra->SaveState(), tensors);
  }
  return tensors;
}

absl::Status RestoreExtras(const CheckpointTensors& tensors, const ReplicatedState& state) {
  for (const auto& [name, extra] : state.extras) {
    CheckpointTensors of_extra = TensorsWithPrefix(tensors, ExtraPrefix(name));
    for (auto& [key, tensor] : of_extra) tensor = tensor.clone();  // the extra may keep them
    DDPRUN_RETURN_IF_ERROR(extra->RestoreState(of_extra));
  }
  return absl::OkStatus();
}

absl::Status RestoreLasting(const CheckpointTensors& tensors, const ReplicatedState& state) {
  DDPRUN_RETURN_IF_ERROR(ApplyTensors(tensors, state.module, state.optimizer).status());
  if (state.average == nullptr) return absl::OkStatus();
  return state.average->Restore(TensorsWithPrefix(tensors, kAveragePrefix));
}

absl::StatusOr<torch::Tensor> EncodeTensors(const CheckpointTensors& tensors) {
  std::vector<torch::Tensor> kept;
  DDPRUN_ASSIGN_OR_RETURN(const TensorFile file, ToTensorFile(tensors, kept));
  const std::string header = EncodeTensorFileHeader(file);
  std::vector<absl::string_view> pieces = {header};
  for (const TensorEntry& entry : file.tensors) pieces.push_back(entry.bytes);
  size_t size = 0;
  for (const absl::string_view piece : pieces) size += piece.size();
  torch::Tensor bytes = torch::empty({static_cast<int64_t>(size)}, torch::kByte);
  auto* to = static_cast<char*>(bytes.mutable_data_ptr());
  for (const absl::string_view piece : pieces) to = std::copy(piece.begin(), piece.end(), to);
  return bytes;
}

absl::StatusOr<CheckpointTensors> DecodeTensors(const torch::Tensor& bytes) {
  const absl::string_view text(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
  DDPRUN_ASSIGN_OR_RETURN(const TensorFile file, DecodeTensorFile(text));
  return FromTensorFile(file, std::make_shared<torch::Tensor>(bytes));
}

absl::StatusOr<torch::Tensor> SendFromLeader(Context& context, uint32_t leader,
                                             const absl::StatusOr<torch::Tensor>& own) {
  const bool sends = own.ok() && own->defined();
  torch::Tensor size =
      torch::tensor({sends ? own->numel() : int64_t{-1}}, torch::kLong).to(context.device());
  DDPRUN_RETURN_IF_ERROR(context.Broadcast(size, leader));
  const int64_t bytes = size.item<int64_t>();
  DDPRUN_RETURN_IF_ERROR(own.status());
  if (bytes < 0) {
    return absl::UnavailableError(
        absl::StrCat(kPeerErrorPrefix, "rank ", leader, " has the newest state and can't send it"));
  }
  torch::Tensor sent =
      sends ? own->to(context.device())
            : torch::empty({bytes}, torch::TensorOptions(torch::kByte).device(context.device()));
  DDPRUN_RETURN_IF_ERROR(context.Broadcast(sent, leader));
  return sent.cpu();
}

absl::Status TakeNewestState(Context& context, const ReplicatedState& state,
                             const KnownStates& known) {
  return CatchExceptions([&]() -> absl::Status {
    const bool leads = context.rank() == known.leader;
    if (leads) NotifyTransferWatch(/*gives=*/true, 0, 1);
    absl::StatusOr<torch::Tensor> own = torch::Tensor();
    if (leads) {
      absl::StatusOr<CheckpointTensors> all = LastingTensors(state);
      if (all.ok()) AddTensors("", PassingTensors(state, known.newest->progress), *all);
      own = all.ok() ? EncodeTensors(*all) : absl::StatusOr<torch::Tensor>(all.status());
    }
    DDPRUN_ASSIGN_OR_RETURN(const torch::Tensor sent, SendFromLeader(context, known.leader, own));
    if (known.HasIt(context.rank())) return absl::OkStatus();
    DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors tensors, DecodeTensors(sent));
    DDPRUN_RETURN_IF_ERROR(RestoreLasting(tensors, state));
    return RestoreExtras(tensors, state);
  });
}

}  // namespace ddprun::worker
