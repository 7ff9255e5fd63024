#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_FINITE_WATCH_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_FINITE_WATCH_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <set>
#include <string>
#include <vector>

#include "worker/torch/checkpoint/checkpoint_contents.h"

namespace ddprun::worker {

// Finds checkpoints that no run can go on from. Proof is a parameter with a NaN or an infinite
// value that it didn't have when this program made its model, or a NaN in the optimizer's state,
// which the next step puts into the parameter. Nothing else is proof: buffers and the program's
// states may have infinite values on purpose (masks, best figures so far), a parameter may have had
// some from the beginning (the bias of a class that must not be chosen), and an infinite second
// moment stops one element but not training.
//
// Threads: one; any while no thread calls Accept.
class FiniteWatch {
 public:
  // Reads all parameters once. Requires: the module has the values that training begins with, or
  // those of a checkpoint that was taken.
  FiniteWatch(const torch::nn::Module& module, torch::optim::Optimizer& optimizer);

  // Describes the first proof, in the module's order, in a checkpoint's or a shard's tensors: "the
  // parameter 'fc.weight' has a NaN"; "" = there is none. Reads parameters and the optimizer's
  // state once. Requires: dense tensors.
  std::string FindBad(const CheckpointTensors& tensors) const;

  // Call it when training begins with these tensors: their values that aren't finite are no proof
  // from now on.
  void Accept(const CheckpointTensors& tensors);

 private:
  std::vector<std::string> parameters_;  // the ones that are checked, without kModelPrefix
  std::set<std::string> accepted_;       // the optimizer's tensors that aren't checked
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_FINITE_WATCH_H_
