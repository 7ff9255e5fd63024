#include "worker/torch/checkpoint/checkpoint_contents.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "ddprun/exponential_moving_average.h"
#include "ddprun/parameters.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/optim/optimizer_state.h"
#include "worker/torch/optim/storage_on_use.h"
#include "worker/torch/zero/zero_shares.h"
#include "worker/torch/zero/zero_state.h"

namespace ddprun::worker {
namespace {

constexpr const char* kProgress = "progress";

constexpr std::array<std::pair<torch::ScalarType, const char*>, 16> kTypes = {
    {{torch::kDouble, "F64"},
     {torch::kFloat, "F32"},
     {torch::kHalf, "F16"},
     {torch::kBFloat16, "BF16"},
     {torch::kLong, "I64"},
     {torch::kInt, "I32"},
     {torch::kShort, "I16"},
     {torch::kChar, "I8"},
     {torch::kByte, "U8"},
     {torch::kBool, "BOOL"},
     {torch::kUInt64, "U64"},
     {torch::kUInt32, "U32"},
     {torch::kUInt16, "U16"},
     {torch::kFloat8_e4m3fn, "F8_E4M3"},
     {torch::kFloat8_e5m2, "F8_E5M2"},
     {torch::kComplexFloat, "C64"}}};

absl::Status Misfit(absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat("the checkpoint is of another model: ", what,
                   "; use the model it was written with, or another checkpoint directory"));
}

// "Float [32, 16]".
std::string FormText(const torch::Tensor& tensor) {
  return absl::StrCat(torch::toString(tensor.scalar_type()), " [",
                      absl::StrJoin(tensor.sizes(), ", "), "]");
}

absl::Status CheckModule(const CheckpointTensors& wanted, const CheckpointTensors& stored) {
  size_t stored_of_model = 0;
  for (const auto& [name, tensor] : stored) {
    if (!absl::StartsWith(name, kModelPrefix)) continue;
    ++stored_of_model;
    if (wanted.count(name) == 0) return Misfit(absl::StrCat("this one has no '", name, "'"));
  }
  for (const auto& [name, tensor] : wanted) {
    const auto found = stored.find(name);
    if (found == stored.end()) return Misfit(absl::StrCat("that one has no '", name, "'"));
    if (found->second.sizes() != tensor.sizes() || found->second.dtype() != tensor.dtype()) {
      return Misfit(absl::StrCat("'", name, "' is ", FormText(found->second),
                                 " in the checkpoint, and ", FormText(tensor), " in this model"));
    }
  }
  return absl::OkStatus();
}

absl::Status ApplyOptimizerState(const OptimizerTensors& state,
                                 torch::optim::Optimizer& optimizer) {
  if (auto* zero = dynamic_cast<ZeroOptimizer*>(&optimizer)) return zero->RestoreState(state);
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      shapes.push_back(parameter.sizes().vec());
    }
  }
  DDPRUN_ASSIGN_OR_RETURN(const OptimizerTensors joined, JoinParts(state, shapes));
  return SetOptimizerState(optimizer, joined);
}

std::vector<at::Generator> Generators(torch::Device device) {
  std::vector<at::Generator> generators = {at::detail::getDefaultCPUGenerator()};
  if (device.is_cuda()) generators.push_back(at::globalContext().defaultGenerator(device));
  return generators;
}

template <typename Function>
auto Locked(at::Generator& generator, Function&& function) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return function();
}

}  // namespace

CheckpointTensors ModuleTensors(const torch::nn::Module& module, const std::string& prefix) {
  CheckpointTensors tensors;
  for (const NamedTensor& one : NamedParameters(module)) tensors[prefix + one.name] = one.tensor;
  for (const NamedTensor& one : NamedBuffers(module)) tensors[prefix + one.name] = one.tensor;
  return tensors;
}

std::map<std::string, std::string> ModuleAliases(const torch::nn::Module& module,
                                                 const std::string& prefix) {
  std::map<const void*, std::string> firsts;
  std::map<std::string, std::string> aliases;
  const auto add = [&](const auto& list) {
    for (const auto& item : list) {
      const auto [first, is_new] =
          firsts.emplace(item.value().unsafeGetTensorImpl(), prefix + item.key());
      if (!is_new) aliases[prefix + item.key()] = first->second;
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return aliases;
}

CheckpointTensors WithFirstNames(const CheckpointTensors& stored, const torch::nn::Module& module,
                                 const std::string& prefix) {
  CheckpointTensors renamed = stored;
  for (const auto& [alias, first] : ModuleAliases(module, prefix)) {
    auto node = renamed.extract(alias);
    if (node.empty()) continue;
    node.key() = first;
    renamed.insert(std::move(node));  // unless it is there
  }
  return renamed;
}

std::string ExtraPrefix(const std::string& state) { return absl::StrCat(kExtraPrefix, state, "."); }

void AddTensors(const std::string& prefix, const CheckpointTensors& more,
                CheckpointTensors& tensors) {
  for (const auto& [name, tensor] : more) tensors[prefix + name] = tensor;
}

CheckpointTensors TensorsWithPrefix(const CheckpointTensors& tensors, const std::string& prefix) {
  CheckpointTensors found;
  for (const auto& [name, tensor] : tensors) {
    if (absl::StartsWith(name, prefix)) found[name.substr(prefix.size())] = tensor;
  }
  return found;
}

CheckpointTensors CollectTensors(const torch::nn::Module& module,
                                 const TrainingProgress& progress) {
  CheckpointTensors tensors = ModuleTensors(module, kModelPrefix);
  tensors[kProgress] = torch::tensor({progress.step, progress.epoch, progress.epoch_samples});
  return tensors;
}

void AddAverages(const CheckpointTensors& averages, const torch::nn::Module& module,
                 CheckpointTensors& tensors) {
  if (averages.empty()) return;
  AddTensors(kAveragePrefix, ModuleTensors(module, /*prefix=*/""), tensors);
  AddTensors(kAveragePrefix, averages, tensors);
}

absl::Status ApplyAverages(const CheckpointTensors& stored, bool notifies,
                           ExponentialMovingAverage& average) {
  const CheckpointTensors whole = TensorsWithPrefix(stored, kAveragePrefix);
  if (whole.empty() && notifies) {
    Notify("the checkpoint has no average of the parameters (ema): it begins anew, with them");
  }
  return average.Restore(whole);
}

absl::StatusOr<TrainingProgress> ApplyTensors(const CheckpointTensors& stored,
                                              torch::nn::Module& module,
                                              torch::optim::Optimizer& optimizer) {
  CheckpointTensors wanted = ModuleTensors(module, kModelPrefix);
  const CheckpointTensors tensors = WithFirstNames(stored, module, kModelPrefix);
  DDPRUN_RETURN_IF_ERROR(CheckModule(wanted, tensors));
  const auto found = tensors.find(kProgress);
  if (found == tensors.end() || found->second.numel() != 3 ||
      found->second.scalar_type() != torch::kLong) {
    return absl::FailedPreconditionError(
        "the checkpoint has no progress; it is not one of ddprun's");
  }
  DDPRUN_RETURN_IF_ERROR(
      ApplyOptimizerState(TensorsWithPrefix(tensors, kOptimizerPrefix), optimizer));
  const torch::NoGradGuard no_grad;
  auto* zero = dynamic_cast<ZeroOptimizer*>(&optimizer);
  for (auto& [name, tensor] : wanted) {
    const torch::Tensor& whole = tensors.at(name);
    const std::string own_name = name.substr(std::string_view(kModelPrefix).size());
    if (zero == nullptr || !zero->TakeParameter(own_name, whole)) CopyTensor(whole, tensor);
  }
  if (zero != nullptr) RenewCopies(zero->implementation());
  const int64_t* values = found->second.const_data_ptr<int64_t>();
  return TrainingProgress{.step = values[0], .epoch = values[1], .epoch_samples = values[2]};
}

torch::Tensor BytesTensor(absl::string_view bytes) {
  torch::Tensor result = torch::empty({static_cast<int64_t>(bytes.size())}, torch::kByte);
  std::memcpy(result.mutable_data_ptr(), bytes.data(), bytes.size());
  return result;
}

torch::Tensor GetGenerators(torch::Device device) {
  std::vector<torch::Tensor> states;
  for (at::Generator& generator : Generators(device)) {
    states.push_back(Locked(generator, [&] { return generator.get_state(); }));
  }
  return torch::cat(states);
}

absl::Status SetGenerators(torch::Device device, const torch::Tensor& state) {
  const int64_t wanted = GetGenerators(device).numel();
  if (state.numel() != wanted || state.scalar_type() != torch::kByte) {
    return absl::FailedPreconditionError(
        absl::StrCat("the checkpoint's random state has ", state.numel(), " bytes, this device's ",
                     wanted, "; resume on the kind of device that wrote it"));
  }
  int64_t begin = 0;
  for (at::Generator& generator : Generators(device)) {
    Locked(generator, [&] {
      const int64_t length = generator.get_state().numel();
      generator.set_state(state.slice(0, begin, begin + length).clone());
      begin += length;
    });
  }
  return absl::OkStatus();
}

void SeedGenerators(torch::Device device, uint64_t seed, int64_t step, uint32_t rank) {
  const uint64_t of_step = Rng(Rng(seed).Next() ^ static_cast<uint64_t>(step)).Next();
  const uint64_t mixed = of_step ^ Rng(~uint64_t{rank}).Next();
  for (at::Generator& generator : Generators(device)) {
    Locked(generator, [&] { generator.set_current_seed(mixed); });
  }
}

absl::Status RestoreGenerators(const CheckpointTensors& tensors, torch::Device device, int64_t step,
                               uint32_t rank) {
  const auto found = tensors.find(absl::StrCat("generators.", rank));
  if (found != tensors.end()) return SetGenerators(device, found->second);
  SeedGenerators(device, /*seed=*/0, step, rank);
  return absl::OkStatus();
}

absl::StatusOr<TensorFile> ToTensorFile(const CheckpointTensors& tensors,
                                        std::vector<torch::Tensor>& kept) {
  TensorFile file;
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor plain = tensor.detach().cpu().contiguous();
    kept.push_back(plain);
    TensorEntry entry;
    for (const auto& [type, type_name] : kTypes) {
      if (type == plain.scalar_type()) entry.type = type_name;
    }
    if (entry.type.empty()) {
      return absl::UnimplementedError(absl::StrCat("'", name, "' has the type ",
                                                   torch::toString(plain.scalar_type()),
                                                   ", which checkpoints can't hold"));
    }
    entry.name = name;
    entry.shape = plain.sizes().vec();
    entry.bytes =
        absl::string_view(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
    file.tensors.push_back(std::move(entry));
  }
  // The widest types first, so that each tensor is at a multiple of its elements' size (TensorAt).
  std::stable_sort(file.tensors.begin(), file.tensors.end(), [](const auto& a, const auto& b) {
    return TensorTypeBytes(a.type) > TensorTypeBytes(b.type);
  });
  return file;
}

namespace {

// Whether the tensor's memory is its elements, in order. A marked tensor has memory only while an
// operator uses it.
bool IsPlain(const torch::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
         !IsMarked(tensor);
}

// A tensor over the entry's bytes, or a copy if they can't be used in place.
torch::Tensor TensorAt(const TensorEntry& entry, torch::ScalarType type,
                       const std::shared_ptr<const void>& owner) {
  if (entry.bytes.empty()) return torch::empty(entry.shape, type);
  const bool aligned =
      reinterpret_cast<uintptr_t>(entry.bytes.data()) % TensorTypeBytes(entry.type) == 0;
  if (!aligned) {
    torch::Tensor copy = torch::empty(entry.shape, type);
    std::memcpy(copy.mutable_data_ptr(), entry.bytes.data(), entry.bytes.size());
    return copy;
  }
  return at::from_blob(
      const_cast<char*>(entry.bytes.data()), entry.shape, [owner](void* /*bytes*/) {}, type);
}

}  // namespace

void CopyTensor(const torch::Tensor& from, const torch::Tensor& to) {
  const bool same = from.dtype() == to.dtype() && from.sizes() == to.sizes();
  if (!same || from.nbytes() == 0 || !IsPlain(from) || !IsPlain(to)) {
    to.copy_(from);
    return;
  }
  std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  to.unsafeGetTensorImpl()->bump_version();  // as copy_ does, so that autograd notices
}

CheckpointTensors FromTensorFile(const TensorFile& file, const std::shared_ptr<const void>& owner) {
  CheckpointTensors tensors;
  for (const TensorEntry& entry : file.tensors) {
    for (const auto& [type, type_name] : kTypes) {
      if (entry.type == type_name) tensors[entry.name] = TensorAt(entry, type, owner);
    }
  }
  return tensors;
}

}  // namespace ddprun::worker
