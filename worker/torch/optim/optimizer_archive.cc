#include "worker/torch/optim/optimizer_archive.h"

#include <c10/util/Type.h>
#include <torch/optim/lbfgs.h>
#include <torch/serialize/archive.h>
#include <torch/utils.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ddprun::worker {
namespace {

using torch::optim::LBFGS;
using torch::optim::LBFGSParamState;

constexpr const char* kRate = "group.0.learning_rate";

// The state is under the first parameter; null before the first step.
const void* Owner(const LBFGS& optimizer) {
  return optimizer.param_groups().front().params().front().unsafeGetTensorImpl();
}

template <typename Tensors>
void AddList(const std::string& name, const Tensors& list, OptimizerTensors& to) {
  size_t number = 0;
  for (const torch::Tensor& one : list) to[absl::StrCat(name, ".", number++)] = one.detach();
}

// The tensors of a list, which are named by numbers.
std::vector<torch::Tensor> TakeList(const std::string& name, const OptimizerTensors& from,
                                    torch::Device device) {
  std::vector<torch::Tensor> list;
  while (true) {
    const auto found = from.find(absl::StrCat(name, ".", list.size()));
    if (found == from.end()) return list;
    list.push_back(found->second.to(device).clone());
  }
}

std::deque<torch::Tensor> AsDeque(const std::vector<torch::Tensor>& list) {
  return {list.begin(), list.end()};
}

}  // namespace

OptimizerTensors GetLbfgsState(const LBFGS& optimizer) {
  OptimizerTensors tensors;
  tensors[kRate] =
      torch::tensor(optimizer.param_groups().front().options().get_lr(), torch::kDouble);
  const auto found = optimizer.state().find(const_cast<void*>(Owner(optimizer)));
  if (found == optimizer.state().end()) return tensors;
  const auto& state = static_cast<const LBFGSParamState&>(*found->second);
  if (!state.d().defined()) return tensors;
  tensors["0.func_evals"] = torch::tensor(state.func_evals(), torch::kLong);
  tensors["0.n_iter"] = torch::tensor(state.n_iter(), torch::kLong);
  tensors["0.t"] = torch::tensor(state.t(), torch::kDouble);
  tensors["0.prev_loss"] = torch::tensor(state.prev_loss(), torch::kDouble);
  tensors["0.d"] = state.d().detach();
  tensors["0.H_diag"] = state.H_diag().detach();
  tensors["0.prev_flat_grad"] = state.prev_flat_grad().detach();
  AddList("0.old_dirs", state.old_dirs(), tensors);
  AddList("0.old_stps", state.old_stps(), tensors);
  AddList("0.ro", state.ro(), tensors);
  return tensors;
}

// Not `al`, which a step fills before it reads it.
absl::Status SetLbfgsState(LBFGS& optimizer, const OptimizerTensors& state) {
  const auto rate = state.find(kRate);
  const bool is_fresh = state.size() == 1;
  for (const char* name :
       {"func_evals", "n_iter", "t", "prev_loss", "d", "H_diag", "prev_flat_grad"}) {
    if (rate != state.end() && (is_fresh || state.contains(absl::StrCat("0.", name)))) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the optimizer's state has no '0.", name,
                     "', which an LBFGS keeps; use the "
                     "optimizer that the checkpoint was written with"));
  }
  optimizer.param_groups().front().options().set_lr(rate->second.item<double>());
  void* const owner = const_cast<void*>(Owner(optimizer));
  optimizer.state().erase(owner);
  if (is_fresh) return absl::OkStatus();
  const torch::Device device = optimizer.param_groups().front().params().front().device();
  const auto tensor = [&](const char* name) { return state.at(name).to(device).clone(); };
  auto made = std::make_unique<LBFGSParamState>();
  made->func_evals(state.at("0.func_evals").item<int64_t>());
  made->n_iter(state.at("0.n_iter").item<int64_t>());
  made->t(state.at("0.t").item<double>());
  made->prev_loss(state.at("0.prev_loss").item<double>());
  made->d(tensor("0.d"));
  made->H_diag(tensor("0.H_diag"));
  made->prev_flat_grad(tensor("0.prev_flat_grad"));
  made->old_dirs(AsDeque(TakeList("0.old_dirs", state, device)));
  made->old_stps(AsDeque(TakeList("0.old_stps", state, device)));
  made->ro(AsDeque(TakeList("0.ro", state, device)));
  optimizer.state()[owner] = std::move(made);
  return absl::OkStatus();
}

namespace {

using torch::optim::Optimizer;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

// By an address as torch::optim::serialize writes it: the parameter's number.
using Numbers = std::map<std::string, std::string>;

Numbers NumbersOfParameters(const Optimizer& optimizer) {
  Numbers numbers;
  for (const auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      const auto address = reinterpret_cast<uintptr_t>(parameter.unsafeGetTensorImpl());
      numbers.emplace(absl::StrCat(address), absl::StrCat(numbers.size()));
    }
  }
  return numbers;
}

std::string Renamed(const std::string& text, const Numbers& numbers) {
  const auto found = numbers.find(text);
  return found == numbers.end() ? text : found->second;
}

void CopyByNumbers(InputArchive& from, const Numbers& numbers, OutputArchive& to) {
  std::map<std::string, std::string> keys;  // by the new one
  for (const std::string& key : from.keys()) keys[Renamed(key, numbers)] = key;
  for (const auto& [name, key] : keys) {
    c10::IValue value;
    from.read(key, value);
    if (value.isModule()) {
      InputArchive part;
      from.read(key, part);
      OutputArchive copy(to.compilation_unit());
      CopyByNumbers(part, numbers, copy);
      to.write(name, copy);
    } else if (value.isString()) {
      to.write(name, c10::IValue(Renamed(value.toStringRef(), numbers)));
    } else if (value.isTensor()) {
      to.write(name, value.toTensor());
    } else {
      to.write(name, value);
    }
  }
}

std::string Bytes(OutputArchive& archive) {
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

InputArchive Read(const std::string& bytes) {
  std::istringstream stream(bytes);
  InputArchive archive;
  archive.load_from(stream);
  return archive;
}

absl::Status NoSave(const Optimizer& optimizer, const std::string& why) {
  const std::string name = c10::demangle(typeid(optimizer).name());
  return absl::UnimplementedError(
      absl::StrCat("the state of the optimizer ", name, " can't be saved: ", why,
                   "; have save(OutputArchive& a) const and load(InputArchive& a) call "
                   "torch::optim::serialize<ITS_PARAM_STATE, ITS_OPTIONS>(a, *this)"));
}

}  // namespace

absl::StatusOr<torch::Tensor> SaveToArchive(const Optimizer& optimizer) {
  try {
    OutputArchive saved;
    optimizer.save(saved);
    InputArchive written = Read(Bytes(saved));
    if (written.keys().empty()) return NoSave(optimizer, "its save() writes nothing");
    OutputArchive numbered;
    CopyByNumbers(written, NumbersOfParameters(optimizer), numbered);
    const std::string text = Bytes(numbered);
    torch::Tensor bytes = torch::empty({static_cast<int64_t>(text.size())}, torch::kByte);
    std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
    return bytes;
  } catch (const std::exception& error) {
    return NoSave(optimizer, error.what());
  }
}

absl::Status LoadFromArchive(const torch::Tensor& bytes, Optimizer& optimizer) {
  const torch::Tensor whole = bytes.contiguous();
  try {
    InputArchive archive =
        Read(std::string(static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()));
    optimizer.load(archive);
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(absl::StrCat("the optimizer ",
                                                      c10::demangle(typeid(optimizer).name()),
                                                      " can't load its state: ", error.what()));
  }
}

}  // namespace ddprun::worker
