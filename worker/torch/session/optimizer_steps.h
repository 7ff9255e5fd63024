#ifndef DDPRUN_WORKER_TORCH_SESSION_OPTIMIZER_STEPS_H_
#define DDPRUN_WORKER_TORCH_SESSION_OPTIMIZER_STEPS_H_

#include <torch/optim/optimizer.h>

#include <cstdint>

#include "absl/status/status.h"

namespace ddprun::worker {

// Detects that a program steps a Session's optimizer itself, as loops without a Session do: each
// update would be applied twice. Threads: one.
class OptimizerSteps {
 public:
  // Call it after each step that the Session had the optimizer take, also if that failed.
  void Note(const torch::optim::Optimizer& optimizer);
  // Errors: FAILED_PRECONDITION — the optimizer has taken other steps since; the text names `step`,
  // the last one that was done. OK for optimizers that don't count their steps.
  absl::Status Check(const torch::optim::Optimizer& optimizer, int64_t step) const;

 private:
  int64_t noted_ = 0;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_OPTIMIZER_STEPS_H_
