#ifndef DDPRUN_WORKER_TORCH_SESSION_SESSION_FACTS_H_
#define DDPRUN_WORKER_TORCH_SESSION_SESSION_FACTS_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "ddprun/dataset.h"
#include "ddprun/optimizer_kind.h"
#include "ddprun/training_options.h"

// What all ranks of a training have alike, beside the module (store/model_check.h), as texts for
// people. Where one differs, each rank would train something else without anybody's noticing:
// another order of the samples, another learning rate, another end.
namespace ddprun::worker {

// The options, but for those that concern one worker alone: files, threads, what is printed.
std::vector<std::string> OptionFacts(const TrainingOptions& options);

// The first and the last sample with a hash of their bytes. That they differ proves nothing: what a
// program draws from generators of its own is another on each rank. So is what isn't the same twice
// on this rank, or can't be loaded, which has no hash. Loads each twice, with torch's generator at
// one place on all ranks, and leaves it as it was.
std::vector<std::string> SampleFacts(const Dataset& data);

std::vector<std::string> OptimizerFacts(const OptimizerKind& kind,
                                        const std::vector<ParameterGroup>& groups);

// The names of the optimizer's parameters in `module`, in the order in which a checkpoint numbers
// their states; "" = not one of the module's.
std::vector<std::string> ParameterNames(const torch::nn::Module& module,
                                        const torch::optim::Optimizer& optimizer);

// Equal for equal facts.
uint64_t Fingerprint(const std::vector<std::string>& facts);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_SESSION_FACTS_H_
