#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_CONTENTS_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_CONTENTS_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/checkpointer.h"
#include "worker/torch/checkpoint/tensor_file.h"

namespace ddprun::worker {

// A checkpoint's tensors by name: "model.<name>", "optimizer.<name>" (optimizer_state.h),
// "ema.<name>" (the model again, with the averages of its parameters in their place),
// "extra.<state>.<name>" (Checkpointer::Add), "generators.<rank>", "progress" (step, epoch,
// epoch_samples; I64[3]). A shard has a rank's "optimizer.<name>@<begin>" (zero_state.h) and those
// extras that differ between ranks.
using CheckpointTensors = std::map<std::string, torch::Tensor>;

// Starts the names of the module's tensors, of an optimizer's, and of an extra's.
inline constexpr const char* kModelPrefix = "model.";
inline constexpr const char* kAveragePrefix = "ema.";
inline constexpr const char* kOptimizerPrefix = "optimizer.";
std::string ExtraPrefix(const std::string& state);

// The module's parameters and buffers, by "<prefix><name>"; one of several names by the first.
CheckpointTensors ModuleTensors(const torch::nn::Module& module, const std::string& prefix);
// The further names of what has several, each with its first one.
std::map<std::string, std::string> ModuleAliases(const torch::nn::Module& module,
                                                 const std::string& prefix);
// What is stored, with each of the module's tensors that has several names under its first.
CheckpointTensors WithFirstNames(const CheckpointTensors& stored, const torch::nn::Module& module,
                                 const std::string& prefix);

// The module's tensors, and the progress. What ZeRO-3 has shared out is without memory.
CheckpointTensors CollectTensors(const torch::nn::Module& module, const TrainingProgress& progress);

// Adds an ExponentialMovingAverage's, unless there are none, and what of the module isn't averaged.
void AddAverages(const CheckpointTensors& averages, const torch::nn::Module& module,
                 CheckpointTensors& tensors);

// Takes them back, or begins anew where there are none, and `notifies` of that. Errors: as
// ExponentialMovingAverage::Restore's.
absl::Status ApplyAverages(const CheckpointTensors& stored, bool notifies,
                           ExponentialMovingAverage& average);

// Adds `more`, each name after `prefix`; and the tensors whose names have it, without it.
void AddTensors(const std::string& prefix, const CheckpointTensors& more,
                CheckpointTensors& tensors);
CheckpointTensors TensorsWithPrefix(const CheckpointTensors& tensors, const std::string& prefix);

// Puts module and optimizer back, a ZeroOptimizer's from whole tensors or shards, others' from the
// same; when an error is returned nothing was changed.
// Errors: FAILED_PRECONDITION — another model or optimizer; the text names what doesn't fit.
absl::StatusOr<TrainingProgress> ApplyTensors(const CheckpointTensors& stored,
                                              torch::nn::Module& module,
                                              torch::optim::Optimizer& optimizer);

// The state of the CPU's random generator, and of the device's, one after the other: U8[n].
torch::Tensor GetGenerators(torch::Device device);
// Takes a state of GetGenerators. Errors: FAILED_PRECONDITION — of another kind of device.
absl::Status SetGenerators(torch::Device device, const torch::Tensor& state);
// Numbers that follow from these alone.
void SeedGenerators(torch::Device device, uint64_t seed, int64_t step, uint32_t rank);
// What a checkpoint has of them for this rank; where it doesn't know it, seeded by step and rank.
absl::Status RestoreGenerators(const CheckpointTensors& tensors, torch::Device device, int64_t step,
                               uint32_t rank);

// to.copy_(from) without a gradient. Of as much as doesn't fit into the processor's caches,
// memcpy(3) writes past them; copy_ reads each line of what it is about to overwrite before, which
// takes half as long again.
void CopyTensor(const torch::Tensor& from, const torch::Tensor& to);

// A file that holds the tensors. `kept` owns what the entries point into.
// Errors: UNIMPLEMENTED — a tensor's type has no name in safetensors.
absl::StatusOr<TensorFile> ToTensorFile(const CheckpointTensors& tensors,
                                        std::vector<torch::Tensor>& kept);
// The tensors of a file, where its bytes lie, which `owner` keeps for them: read-only. Who keeps
// one, or changes it, clones it.
CheckpointTensors FromTensorFile(const TensorFile& file, const std::shared_ptr<const void>& owner);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_CONTENTS_H_
