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

// What must be the same on all ranks of a training, beside the module (store/model_check.h), as
// texts for people. If one differed, ranks would train different things unnoticed: in another order
// of the samples, with another learning rate, to another end.
namespace ddprun::worker {

// The options, except those that concern one worker alone: files, threads, output.
std::vector<std::string> OptionFacts(const TrainingOptions& options);

// The first and the last sample with a hash of their bytes. A difference proves nothing, because a
// program may draw from random generators of its own. Loads each sample twice, with torch's
// generator seeded alike on all ranks, and restores the generator. A sample that isn't the same
// twice on this rank, or can't be loaded, has no hash.
std::vector<std::string> SampleFacts(const Dataset& data);

std::vector<std::string> OptimizerFacts(const OptimizerKind& kind,
                                        const std::vector<ParameterGroup>& groups);

// The names of the optimizer's parameters in `module`, in the order in which a checkpoint numbers
// their states; "" = not one of the module's.
std::vector<std::string> ParameterNames(const torch::nn::Module& module,
                                        const torch::optim::Optimizer& optimizer);

// A hash of the facts.
uint64_t Fingerprint(const std::vector<std::string>& facts);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_SESSION_FACTS_H_
