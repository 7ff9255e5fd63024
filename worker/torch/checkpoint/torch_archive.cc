#include "worker/torch/checkpoint/torch_archive.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <exception>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::worker {
namespace {

absl::Status CannotRead(const std::string& path, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat(
      "a file of torch.save, ", why,
      "; convert it:\n  python3 -c \"import torch, safetensors.torch as s; x = torch.load('", path,
      "', map_location='cpu', weights_only=False); x = x.state_dict() if hasattr(x, 'state_dict') "
      "else x\n  s.save_file({k: v.contiguous().clone() for k, v in x.items()}, '",
      path, ".safetensors')\""));
}

CheckpointTensors OfModule(const torch::jit::Module& module) {
  CheckpointTensors tensors;
  for (const auto& one : module.named_parameters()) tensors[one.name] = one.value.detach();
  for (const auto& one : module.named_buffers()) tensors[one.name] = one.value.detach();
  return tensors;
}

absl::StatusOr<CheckpointTensors> OfDict(const std::string& path, const c10::IValue& value) {
  if (!value.isGenericDict()) {
    return CannotRead(path, absl::StrCat("which has a ", value.tagKind(), " and no dict"));
  }
  CheckpointTensors tensors;
  std::vector<std::string> others;
  for (const auto& item : value.toGenericDict()) {
    const std::string key = item.key().isString() ? item.key().toStringRef() : "?";
    if (item.value().isTensor()) {
      tensors[key] = item.value().toTensor().cpu();
    } else {
      others.push_back(key);
    }
  }
  if (!tensors.empty()) return tensors;
  return CannotRead(path,
                    absl::StrCat("a dict without tensors of its own: its keys are ",
                                 absl::StrJoin(others, ", "), "; one of these may have them"));
}

}  // namespace

bool IsTorchArchive(absl::string_view bytes) {
  return absl::StartsWith(bytes, absl::string_view("PK\x03\x04", 4));
}

// A TorchScript archive has code and constants, and is read as a module; a pickled dict has
// neither.
absl::StatusOr<CheckpointTensors> ReadTorchArchive(const std::string& path,
                                                   absl::string_view bytes) {
  try {
    if (absl::StrContains(bytes, "constants.pkl")) {
      return OfModule(torch::jit::load(path, torch::kCPU));
    }
    return OfDict(path, torch::jit::pickle_load(std::vector<char>(bytes.begin(), bytes.end())));
  } catch (const std::exception& error) {
    const absl::string_view text = error.what();
    return CannotRead(
        path, absl::StrCat("which LibTorch can't read (", text.substr(0, text.find('\n')), ")"));
  }
}

}  // namespace ddprun::worker
