#include "worker/torch/checkpoint/peer_state.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "ddprun/exponential_moving_average.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/optim/optimizer_state.h"

namespace ddprun::worker {
namespace {

using Version = std::optional<StateVersion>;

// A version as numbers: {there is one, step, epoch, epoch_samples, generation}.
constexpr int64_t kNumbers = 5;

torch::Tensor VersionTensor(const Version& own) {
  const auto [progress, generation] = own.value_or(StateVersion{});
  return torch::tensor({int64_t{own.has_value()}, progress.step, progress.epoch,
                        progress.epoch_samples, static_cast<int64_t>(generation)});
}

Version VersionFrom(const torch::Tensor& numbers) {
  std::array<int64_t, kNumbers> values = {};
  std::memcpy(values.data(), numbers.const_data_ptr(), sizeof(values));
  if (values[0] == 0) return std::nullopt;
  return StateVersion{
      .progress = {.step = values[1], .epoch = values[2], .epoch_samples = values[3]},
      .generation = static_cast<uint64_t>(values[4])};
}

// Every rank's, by rank.
absl::StatusOr<std::vector<Version>> Exchange(Context& context, const Version& own) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<torch::Tensor> all,
                          context.AllGather(VersionTensor(own).to(context.device())));
  std::vector<Version> versions;
  for (const torch::Tensor& numbers : all) versions.push_back(VersionFrom(numbers.cpu()));
  return versions;
}

// Whose state counts. An epoch that has ended is further than the same steps before its end; of a
// step that was done twice, the second time counts: the others have gone on from there.
size_t Furthest(const std::vector<Version>& all) {
  const auto place = [](const Version& one) {
    if (!one.has_value()) return std::make_tuple(false, int64_t{0}, int64_t{0}, uint64_t{0});
    return std::make_tuple(true, one->progress.step, one->progress.epoch, one->generation);
  };
  const auto found = std::max_element(
      all.begin(), all.end(),
      [&](const Version& one, const Version& other) { return place(one) < place(other); });
  return static_cast<size_t>(found - all.begin());
}

// The bytes of a file of it, [n] U8.
absl::StatusOr<torch::Tensor> Encode(const ReplicatedState& state,
                                     const TrainingProgress& progress) {
  CheckpointTensors tensors = CollectTensors(state.module, progress);
  DDPRUN_ASSIGN_OR_RETURN(const OptimizerTensors of_optimizer, GetOptimizerState(state.optimizer));
  AddTensors(kOptimizerPrefix, of_optimizer, tensors);
  for (const auto& [name, extra] : state.extras) {
    AddTensors(ExtraPrefix(name), extra->SaveState(), tensors);
  }
  if (state.average != nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors averages, state.average->Whole(/*target=*/0));
    AddTensors(kAveragePrefix, averages, tensors);
  }
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

absl::Status Apply(const torch::Tensor& bytes, const ReplicatedState& state) {
  const absl::string_view text(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
  DDPRUN_ASSIGN_OR_RETURN(const TensorFile file, DecodeTensorFile(text));
  const CheckpointTensors tensors = FromTensorFile(file, std::make_shared<torch::Tensor>(bytes));
  DDPRUN_RETURN_IF_ERROR(ApplyTensors(tensors, state.module, state.optimizer).status());
  for (const auto& [name, extra] : state.extras) {
    CheckpointTensors of_extra = TensorsWithPrefix(tensors, ExtraPrefix(name));
    for (auto& [key, tensor] : of_extra) tensor = tensor.clone();  // it may keep them
    DDPRUN_RETURN_IF_ERROR(extra->RestoreState(of_extra));
  }
  if (state.average == nullptr) return absl::OkStatus();
  return state.average->Restore(TensorsWithPrefix(tensors, kAveragePrefix));
}

// `leader`'s bytes on all ranks; a negative size: it has none.
absl::StatusOr<torch::Tensor> Send(Context& context, uint32_t leader, const torch::Tensor& own) {
  torch::Tensor size =
      torch::tensor({own.defined() ? own.numel() : int64_t{-1}}, torch::kLong).to(context.device());
  DDPRUN_RETURN_IF_ERROR(context.Broadcast(size, leader));
  const int64_t bytes = size.item<int64_t>();
  if (bytes < 0) {
    return absl::UnavailableError(
        absl::StrCat(kPeerErrorPrefix, "rank ", leader, " has the newest state and can't send it"));
  }
  torch::Tensor sent =
      own.defined()
          ? own.to(context.device())
          : torch::empty({bytes}, torch::TensorOptions(torch::kByte).device(context.device()));
  DDPRUN_RETURN_IF_ERROR(context.Broadcast(sent, leader));
  return sent.cpu();
}

}  // namespace

absl::StatusOr<Version> TakeNewestState(Context& context, const ReplicatedState& state,
                                        const Version& own) {
  return CatchExceptions([&]() -> absl::StatusOr<Version> {
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<Version> all, Exchange(context, own));
    const auto leader = static_cast<uint32_t>(Furthest(all));
    const Version& newest = all[leader];
    const auto is_newest = [&](const Version& one) { return one == newest; };
    if (std::all_of(all.begin(), all.end(), is_newest)) return newest;
    absl::StatusOr<torch::Tensor> bytes = torch::Tensor();
    if (context.rank() == leader) bytes = Encode(state, newest->progress);
    const absl::StatusOr<torch::Tensor> sent =
        Send(context, leader, bytes.ok() ? *bytes : torch::Tensor());
    DDPRUN_RETURN_IF_ERROR(bytes.status());
    DDPRUN_RETURN_IF_ERROR(sent.status());
    if (own == newest) return newest;
    DDPRUN_RETURN_IF_ERROR(Apply(*sent, state));
    if (!own.has_value()) {
      SeedGenerators(context.device(), newest->progress.step, context.rank());
    }
    return newest;
  });
}

}  // namespace ddprun::worker
