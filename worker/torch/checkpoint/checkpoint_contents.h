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
#include "absl/strings/string_view.h"
#include "ddprun/checkpointer.h"
#include "worker/torch/checkpoint/tensor_file.h"

namespace ddprun::worker {

// A checkpoint's tensors by name: "model.<name>", "optimizer.<name>" (optimizer_state.h),
// "ema.<name>" (the model again, with the averages of its parameters in their place),
// "extra.<state>.<name>" (Checkpointer::Add), "generators.<rank>", "progress" (step, epoch,
// epoch_samples; I64[3]). A shard has a rank's "optimizer.<name>@<begin>" (zero_state.h) and those
// extras that differ between ranks.
using CheckpointTensors = std::map<std::string, torch::Tensor>;

// The prefixes of names: of the module's tensors, of the averages, of an optimizer's state, of all
// extras; and of one extra.
inline constexpr const char* kModelPrefix = "model.";
inline constexpr const char* kAveragePrefix = "ema.";
inline constexpr const char* kOptimizerPrefix = "optimizer.";
inline constexpr const char* kExtraPrefix = "extra.";
std::string ExtraPrefix(const std::string& state);

// The module's parameters and buffers, by "<prefix><name>"; a tensor with several names by the
// first.
CheckpointTensors ModuleTensors(const torch::nn::Module& module, const std::string& prefix);
// The further names of tensors with several, each with the tensor's first name.
std::map<std::string, std::string> ModuleAliases(const torch::nn::Module& module,
                                                 const std::string& prefix);
// Returns `stored` with those of the module's tensors that have several names under their first.
CheckpointTensors WithFirstNames(const CheckpointTensors& stored, const torch::nn::Module& module,
                                 const std::string& prefix);

// The module's tensors, and the progress. Parameters that ZeRO-3 has shared out have no memory.
CheckpointTensors CollectTensors(const torch::nn::Module& module, const TrainingProgress& progress);

// Adds an ExponentialMovingAverage's tensors, if there are any, and those of the module that aren't
// averaged.
void AddAverages(const CheckpointTensors& averages, const torch::nn::Module& module,
                 CheckpointTensors& tensors);

// Restores the averages, or, if there are none, begins anew, and says so if `notifies`. Errors: as
// ExponentialMovingAverage::Restore's.
absl::Status ApplyAverages(const CheckpointTensors& stored, bool notifies,
                           ExponentialMovingAverage& average);

// Adds the tensors of `more` to `tensors`, with `prefix` before each name.
void AddTensors(const std::string& prefix, const CheckpointTensors& more,
                CheckpointTensors& tensors);
// The tensors with names that begin with `prefix`, without the prefix.
CheckpointTensors TensorsWithPrefix(const CheckpointTensors& tensors, const std::string& prefix);

// Restores module and optimizer, from whole tensors or from shards. After an error nothing was
// changed.
// Errors: FAILED_PRECONDITION — another model or optimizer; the text names what doesn't fit.
absl::StatusOr<TrainingProgress> ApplyTensors(const CheckpointTensors& stored,
                                              torch::nn::Module& module,
                                              torch::optim::Optimizer& optimizer);

// The bytes as a tensor: U8[n].
torch::Tensor BytesTensor(absl::string_view bytes);

// The state of the CPU's random generator, and of the device's, one after the other: U8[n].
torch::Tensor GetGenerators(torch::Device device);
// Takes a state of GetGenerators. Errors: FAILED_PRECONDITION — of another kind of device.
absl::Status SetGenerators(torch::Device device, const torch::Tensor& state);
// Seeds the generators with numbers that depend on the arguments alone.
void SeedGenerators(torch::Device device, uint64_t seed, int64_t step, uint32_t rank);
// Restores this rank's generators from a checkpoint, or seeds them by step and rank if it has none.
absl::Status RestoreGenerators(const CheckpointTensors& tensors, torch::Device device, int64_t step,
                               uint32_t rank);

// to.copy_(from) without a gradient, by memcpy(3) if it can: large copies then bypass the
// processor's caches, whereas copy_ first reads each cache line that it overwrites and takes half
// as long again.
void CopyTensor(const torch::Tensor& from, const torch::Tensor& to);

// A file that holds the tensors. `kept` owns the memory that the entries point into.
// Errors: UNIMPLEMENTED — a tensor's type has no name in safetensors.
absl::StatusOr<TensorFile> ToTensorFile(const CheckpointTensors& tensors,
                                        std::vector<torch::Tensor>& kept);
// The tensors of a file, as read-only views of its bytes, which `owner` keeps. Clone a tensor to
// keep or change it.
CheckpointTensors FromTensorFile(const TensorFile& file, const std::shared_ptr<const void>& owner);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_CONTENTS_H_
