#include "ddprun/weights.h"

#include <torch/utils.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "worker/torch/checkpoint/atomic_file.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/checkpoint/mapped_file.h"
#include "worker/torch/checkpoint/tensor_file.h"
#include "worker/torch/checkpoint/torch_archive.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/optim/storage_on_use.h"

namespace ddprun {

using worker::CheckpointTensors;
using worker::MappedFile;
using worker::ReadAhead;
using worker::TensorFile;

namespace {

absl::Status WithPath(const std::string& path, const absl::Status& status) {
  return {status.code(), absl::StrCat("weights '", path, "': ", status.message())};
}

// "'a', 'b' and 7 more".
std::string FirstOf(const std::vector<std::string>& names) {
  constexpr size_t kTold = 3;
  const size_t told = std::min(kTold, names.size());
  std::string text =
      absl::StrCat("'", absl::StrJoin(absl::MakeSpan(names).first(told), "', '"), "'");
  if (names.size() > told) absl::StrAppend(&text, " and ", names.size() - told, " more");
  return text;
}

absl::Status CheckFit(const CheckpointTensors& wanted, const CheckpointTensors& stored,
                      const LoadedWeights& found, bool strict) {
  if (strict && !found.missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("there is no ", FirstOf(found.missing),
                     ", which the module has; give the prefix of its names, or strict = false"));
  }
  if (strict && !found.unexpected.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the module has no ", FirstOf(found.unexpected),
                     ", which is there; give the prefix of its names, or strict = false"));
  }
  for (const auto& [name, tensor] : wanted) {
    const auto one = stored.find(name);
    if (one == stored.end() || one->second.sizes() == tensor.sizes()) continue;
    return absl::FailedPreconditionError(absl::StrCat("'", name, "' has the shape ",
                                                      c10::str(one->second.sizes()),
                                                      ", the module's ", c10::str(tensor.sizes())));
  }
  return absl::OkStatus();
}

// The file's tensors by their names there.
absl::StatusOr<CheckpointTensors> Stored(const std::string& path,
                                         const std::shared_ptr<const MappedFile>& mapped) {
  if (worker::IsTorchArchive(mapped->bytes())) {
    return worker::ReadTorchArchive(path, mapped->bytes());
  }
  DDPRUN_ASSIGN_OR_RETURN(
      const TensorFile file,
      worker::DecodeTensorFile(mapped->bytes(), worker::TensorFileCheck::kChecksumIfAny));
  return worker::FromTensorFile(file, mapped);
}

absl::StatusOr<LoadedWeights> Fill(torch::nn::Module& module, const std::string& path,
                                   const LoadWeightsOptions& options) {
  DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> mapped, MappedFile::Open(path));
  const ReadAhead ahead(mapped->bytes());
  DDPRUN_ASSIGN_OR_RETURN(const CheckpointTensors all, Stored(path, mapped));
  const CheckpointTensors stored =
      worker::WithFirstNames(worker::TensorsWithPrefix(all, options.prefix), module, /*prefix=*/"");
  CheckpointTensors wanted = worker::ModuleTensors(module, /*prefix=*/"");
  LoadedWeights found;
  for (const auto& [name, tensor] : wanted) {
    if (stored.count(name) == 0) found.missing.push_back(name);
  }
  for (const auto& [name, tensor] : stored) {
    if (wanted.count(name) == 0) found.unexpected.push_back(name);
  }
  DDPRUN_RETURN_IF_ERROR(CheckFit(wanted, stored, found, options.strict));
  const torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : wanted) {
    const auto one = stored.find(name);
    if (one != stored.end()) worker::CopyTensor(one->second, tensor);
  }
  return found;
}

}  // namespace

absl::StatusOr<LoadedWeights> LoadWeights(torch::nn::Module& module, const std::string& path,
                                          const LoadWeightsOptions& options) {
  absl::StatusOr<LoadedWeights> found =
      worker::CatchExceptions([&] { return Fill(module, path, options); });
  if (found.ok()) return found;
  return WithPath(path, found.status());
}

absl::Status SaveWeights(const torch::nn::Module& module, const std::string& path) {
  const absl::Status status = worker::CatchExceptions([&]() -> absl::Status {
    const CheckpointTensors tensors = worker::ModuleTensors(module, /*prefix=*/"");
    for (const auto& [name, tensor] : tensors) {
      if (worker::StaysInMemory(tensor)) continue;
      return absl::FailedPreconditionError(absl::StrCat("'", name, "' ", worker::kInShares));
    }
    std::vector<torch::Tensor> kept;
    DDPRUN_ASSIGN_OR_RETURN(TensorFile file, worker::ToTensorFile(tensors, kept));
    file.metadata = worker::ModuleAliases(module, /*prefix=*/"");
    file.metadata["format"] = "pt";  // what transformers asks for
    const std::string header = worker::EncodeTensorFileHeader(file);
    std::vector<absl::string_view> pieces = {header};
    for (const worker::TensorEntry& entry : file.tensors) pieces.push_back(entry.bytes);
    return worker::WriteFileAtomically(path, pieces);
  });
  return status.ok() ? status : WithPath(path, status);
}

}  // namespace ddprun
