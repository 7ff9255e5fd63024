#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_FINITE_WATCH_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_FINITE_WATCH_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <set>
#include <string>
#include <vector>

#include "worker/torch/checkpoint/checkpoint_contents.h"

namespace ddprun::worker {

// Finds checkpoints that no run can go on from: a parameter has a NaN or an infinite value that it
// hadn't when this program made its model, or the optimizer's state of one has a NaN, which is the
// parameter's with the next step. Nothing else is a proof. Buffers and own states may hold infinite
// values on purpose (masks, best figures so far), a parameter may have had some from the beginning
// (the bias of a class that must not be chosen), and a second moment that is infinite stops one
// element and not training.
//
// Threads: one; while none calls Accept, any.
class FiniteWatch {
 public:
  // Reads all parameters once. Requires: the module has the values that training begins with, or
  // those of a checkpoint that was taken.
  FiniteWatch(const torch::nn::Module& module, torch::optim::Optimizer& optimizer);

  // What of a checkpoint's tensors, or of a shard's, is such a proof: "the parameter 'fc.weight'
  // has a NaN", the first in the module's order; "" = nothing. Reads parameters and the optimizer's
  // state once. Requires: dense tensors.
  std::string FindBad(const CheckpointTensors& tensors) const;

  // Training has begun with these: what of them isn't finite is no proof from now on.
  void Accept(const CheckpointTensors& tensors);

 private:
  std::vector<std::string> parameters_;  // those that are looked at, without kModelPrefix
  std::set<std::string> accepted_;       // of the optimizer's tensors: those that aren't
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_FINITE_WATCH_H_
