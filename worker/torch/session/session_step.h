#ifndef DDPRUN_WORKER_TORCH_SESSION_SESSION_STEP_H_
#define DDPRUN_WORKER_TORCH_SESSION_SESSION_STEP_H_

#include <torch/types.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/dataset.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/session/own_states.h"

namespace ddprun::worker {

// The loss is read every so many steps, for the metrics and to check that it is finite.
inline constexpr int64_t kNotifyEvery = 10;

// The error of a program that calls methods in a wrong order.
inline absl::Status Misuse(const std::string& what) { return absl::FailedPreconditionError(what); }

// Prints a line to standard output, at once.
inline void Print(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

// The samples of one backward pass.
struct Pass {
  Batch batch;
  double weight = 1;  // of the pass' mean loss in the step's gradient, among all passes and ranks
  double share = 1;   // of the pass in this rank's samples of the step
};

// Copies of what a step changes before its optimizer steps, made at its beginning. (Random
// generators are seeded anew: Session::Implementation::SeedGenerators.)
struct StepStart {
  int64_t step = 0;
  std::vector<torch::Tensor> buffers;  // copies
  CheckpointedState::Tensors power_sgd;
  OwnStates::Kept own;
  bool is_finished = false;
  // Copies of what only optimizers change, for a step in which passes follow an optimizer's step:
  // with several modules, or with an optimizer that asks for the loss several times.
  std::optional<CheckpointTensors> before_update;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_SESSION_STEP_H_
