#ifndef DDPRUN_WORKER_TORCH_SESSION_SESSION_STEP_H_
#define DDPRUN_WORKER_TORCH_SESSION_SESSION_STEP_H_

#include <torch/types.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/dataset.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/session/own_states.h"

namespace ddprun::worker {

// Steps between two at which the loss is read, for the metrics and to see that it is a number.
inline constexpr int64_t kNotifyEvery = 10;

// "1 worker", "2 workers".
inline std::string WorkersText(uint32_t count) {
  return absl::StrCat(count, count == 1 ? " worker" : " workers");
}

// The program calls in a wrong order.
inline absl::Status Misuse(const std::string& what) { return absl::FailedPreconditionError(what); }

// A line on standard output, at once.
inline void Print(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

// What one backward pass learns from.
struct Pass {
  Batch batch;
  double weight = 1;  // of its mean loss in the step's gradient, over all ranks' and passes'
  double share = 1;   // of this rank's samples in the step
};

// What a step changes before the optimizer does, as it was before. (Random generators are set
// anew: Session::Implementation::SeedGenerators.)
struct StepStart {
  int64_t step = 0;
  std::vector<torch::Tensor> buffers;  // copies
  CheckpointedState::Tensors power_sgd;
  OwnStates::Kept own;
  bool is_finished = false;
  // Copies of what only optimizers change, of a step that isn't over when the first of them steps,
  // or that is made of several passes.
  std::optional<CheckpointTensors> before_update;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_SESSION_STEP_H_
