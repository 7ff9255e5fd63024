#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_WEIGHTS_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_WEIGHTS_H_

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// A module's parameters and buffers as safetensors files, by their names, to and from Python:
//
//   ddprun::LoadWeights(*model, "model.safetensors");    safetensors.torch.save_model(model, path)
//   ddprun::SaveWeights(*model, "model.safetensors");    safetensors.torch.load_model(model, path)
//
// No collective: load on every rank, or on rank 0 before DistributedDataParallel::Create or
// ZeroOptimizer::Create, which copy rank 0's to all. (After ZeroOptimizer::Create on every rank,
// and then its ParametersChanged(). With ZeRO-3 that is a collective, and one saves while all ranks
// hold a ZeroOptimizer::WholeParameters.) To go on with a training, use a Checkpointer. Threads:
// one.
namespace ddprun {

struct LoadWeightsOptions {
  // As load_state_dict(strict=True): a tensor that only module or file has is an error.
  bool strict = true;
  // Before each of the module's names in the file; what is in the file under other names is then
  // nobody's. "model." reads a checkpoint of a Checkpointer.
  std::string prefix = {};
};

struct LoadedWeights {
  std::vector<std::string> missing;     // the module's names that the file doesn't have
  std::vector<std::string> unexpected;  // the file's names that the module doesn't have
};

// Fills the module from a file that Python, SaveWeights or a Checkpointer wrote, or torch::save of
// a module, torch.jit.save, or torch.save of a state_dict. Types may differ, values are converted
// as load_state_dict does. What has several names (tied parameters) may have any of them in the
// file. Returns: what is missing and unexpected, both empty when strict. Errors: those of reading,
// with the path. DATA_LOSS — no safetensors file, or a damaged one (where it has a checksum of
// ddprun's, any byte is noticed). FAILED_PRECONDITION — another zip of torch.save's; the text has
// the command that converts it. The same — other names or shapes; the text has the first. After an
// error nothing was changed.
absl::StatusOr<LoadedWeights> LoadWeights(torch::nn::Module& module, const std::string& path,
                                          const LoadWeightsOptions& options = {});

// Writes the module to a new file, which then takes the place of `path`. What has several names is
// stored under the first; the metadata name the others, as save_model's do.
// Errors: those of the file system, with the path. UNIMPLEMENTED — a type that safetensors don't
// have. FAILED_PRECONDITION — parameters are shared out (ZeRO-3).
absl::Status SaveWeights(const torch::nn::Module& module, const std::string& path);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_WEIGHTS_H_
