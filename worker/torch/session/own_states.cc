#include "worker/torch/session/own_states.h"

#include <torch/utils.h>

#include <array>
#include <type_traits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"

namespace ddprun {
namespace {

constexpr const char* kValue = "value";
constexpr std::array kOfTheSession = {"scaler", "data", "batch", "power_sgd", "buckets"};

torch::Tensor ToTensor(const torch::Tensor& value) { return value.detach().cpu().clone(); }
torch::Tensor ToTensor(bool value) { return torch::tensor({int64_t{value}}); }
torch::Tensor ToTensor(int value) { return torch::tensor({int64_t{value}}); }
torch::Tensor ToTensor(int64_t value) { return torch::tensor({value}); }
torch::Tensor ToTensor(double value) { return torch::tensor({value}, torch::kDouble); }
torch::Tensor ToTensor(const std::vector<int64_t>& values) {
  return torch::tensor(values, torch::kLong);
}
torch::Tensor ToTensor(const std::vector<double>& values) {
  return torch::tensor(values, torch::kDouble);
}
torch::Tensor ToTensor(const std::string& value) { return worker::BytesTensor(value); }

template <typename Element>
bool TakeElements(const torch::Tensor& stored, std::vector<Element>& values) {
  if (stored.scalar_type() != c10::CppTypeToScalarType<Element>()) return false;
  const torch::Tensor plain = stored.contiguous();
  const auto* first = static_cast<const Element*>(plain.const_data_ptr());
  values.assign(first, first + plain.numel());
  return true;
}

// False: the stored tensor is of another type.
bool Take(const torch::Tensor& stored, torch::Tensor& value) {
  value = value.defined() ? stored.to(value.device()).clone() : stored.clone();
  return true;
}
bool Take(const torch::Tensor& stored, std::vector<int64_t>& values) {
  return TakeElements(stored, values);
}
bool Take(const torch::Tensor& stored, std::vector<double>& values) {
  return TakeElements(stored, values);
}
bool Take(const torch::Tensor& stored, std::string& value) {
  std::vector<uint8_t> bytes;
  if (!TakeElements(stored, bytes)) return false;
  value.assign(bytes.begin(), bytes.end());
  return true;
}
template <typename Number>
bool Take(const torch::Tensor& stored, Number& value) {
  using Stored = std::conditional_t<std::is_same_v<Number, double>, double, int64_t>;
  std::vector<Stored> one;
  if (!TakeElements(stored, one) || one.size() != 1) return false;
  value = static_cast<Number>(one.front());
  return true;
}

}  // namespace

template <typename Value>
void OwnState::Refer(Value& value) {
  save_ = [&value] { return CheckpointedState::Tensors{{kValue, ToTensor(value)}}; };
  restore_ = [&value](const CheckpointedState::Tensors& state) -> absl::Status {
    const auto found = state.find(kValue);
    if (found != state.end() && Take(found->second, value)) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "a state of the program's own was saved as another type than it has now");
  };
}

OwnState::OwnState(CheckpointedState& state)
    : save_([&state] { return state.SaveState(); }),
      restore_([&state](const auto& tensors) { return state.RestoreState(tensors); }),
      differs_by_rank_(state.differs_by_rank()) {}
OwnState::OwnState(bool& value) { Refer(value); }
OwnState::OwnState(int& value) { Refer(value); }
OwnState::OwnState(int64_t& value) { Refer(value); }
OwnState::OwnState(double& value) { Refer(value); }
OwnState::OwnState(std::string& value) { Refer(value); }
OwnState::OwnState(std::vector<int64_t>& values) { Refer(values); }
OwnState::OwnState(std::vector<double>& values) { Refer(values); }
OwnState::OwnState(torch::Tensor& value) { Refer(value); }

namespace worker {
namespace {

class Adapted : public CheckpointedState {
 public:
  explicit Adapted(OwnState state) : state_(std::move(state)) {}
  Tensors SaveState() const override { return state_.Save(); }
  absl::Status RestoreState(const Tensors& state) override { return state_.Restore(state); }

 private:
  const OwnState state_;
};

}  // namespace

absl::Status OwnStates::Add(const std::string& name, const OwnState& state) {
  const bool is_named = !name.empty() && !absl::StrContains(name, '.') &&
                        !absl::StrContains(name, '/') && !absl::StartsWith(name, "buckets-") &&
                        !absl::c_linear_search(kOfTheSession, name);
  if (!is_named || states_.contains(name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", name, "' can't name a state of the program's own: ",
        is_named ? "another one has it" : "give it one of its own, without '.' and '/'"));
  }
  if (state.differs_by_rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the state '", name,
                     "' differs by rank: no other rank could give it to a new worker; keep "
                     "in a Session what all ranks have alike"));
  }
  states_[name] = std::make_unique<Adapted>(state);
  return absl::OkStatus();
}

std::map<std::string, CheckpointedState*> OwnStates::Beside(
    std::map<std::string, CheckpointedState*> others) const {
  for (const auto& [name, state] : states_) others[name] = state.get();
  return others;
}

OwnStates::Kept OwnStates::Keep() const {
  Kept kept;
  for (const auto& [name, state] : states_) {
    for (const auto& [key, tensor] : state->SaveState()) {
      kept[name][key] = tensor.detach().cpu().clone();
    }
  }
  return kept;
}

absl::Status OwnStates::PutBack(const Kept& kept) const {
  for (const auto& [name, state] : states_) {
    const auto found = kept.find(name);
    if (found != kept.end()) DDPRUN_RETURN_IF_ERROR(state->RestoreState(found->second));
  }
  return absl::OkStatus();
}

}  // namespace worker
}  // namespace ddprun
