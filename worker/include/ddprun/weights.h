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
// No collectives: load on every rank, or on rank 0 before DistributedDataParallel::Create or
// ZeroOptimizer::Create, which copy rank 0's values to all. After ZeroOptimizer::Create load on
// every rank and call its ParametersChanged(). With ZeRO-3 loading is a collective, and a rank can
// save only while all ranks hold a ZeroOptimizer::WholeParameters. To resume a training, use a
// Checkpointer. Threads: one.
namespace ddprun {

struct LoadWeightsOptions {
  // As load_state_dict(strict=True): a tensor that only the module or only the file has is an
  // error.
  bool strict = true;
  // The prefix of the module's names in the file; other names in the file are ignored. "model."
  // reads a checkpoint of a Checkpointer.
  std::string prefix = {};
};

struct LoadedWeights {
  std::vector<std::string> missing;     // the module's names that the file doesn't have
  std::vector<std::string> unexpected;  // the file's names that the module doesn't have
};

// Fills the module from a file that Python, SaveWeights or a Checkpointer wrote, or torch::save of
// a module, torch.jit.save, or torch.save of a state_dict. If types differ, values are converted as
// by load_state_dict. A tensor with several names (tied parameters) may have any of them in the
// file. Returns the missing and unexpected names, both empty with `strict`. Errors: those of
// reading, with the path. DATA_LOSS — no safetensors file, or a damaged one (a file with ddprun's
// checksum is checked byte for byte). FAILED_PRECONDITION — another zip of torch.save's; the text
// has the command that converts it. Or other names or shapes; the text has the first one. After an
// error nothing was changed.
absl::StatusOr<LoadedWeights> LoadWeights(torch::nn::Module& module, const std::string& path,
                                          const LoadWeightsOptions& options = {});

// Writes the module to a new file, which then takes the place of `path`. A tensor with several
// names is stored under the first; the metadata has the others, as with save_model.
// Errors: those of the file system, with the path. UNIMPLEMENTED — a type that safetensors don't
// have. FAILED_PRECONDITION — parameters are shared out (ZeRO-3).
absl::Status SaveWeights(const torch::nn::Module& module, const std::string& path);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_WEIGHTS_H_
