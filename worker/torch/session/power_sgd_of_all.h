#ifndef DDPRUN_WORKER_TORCH_SESSION_POWER_SGD_OF_ALL_H_
#define DDPRUN_WORKER_TORCH_SESSION_POWER_SGD_OF_ALL_H_

#include "absl/status/status.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/power_sgd.h"

namespace ddprun::worker {

// What of a PowerSgd is the same on all ranks, and a new worker must have as the others have it:
// its step, which says whether gradients are compressed, and the matrices Q, by which all do. Who
// takes it has lost nothing yet that the next gradient would have to make up for: no errors, as in
// PyTorch, where each rank's are its own. Threads: as PowerSgd's.
class PowerSgdOfAll : public CheckpointedState {
 public:
  // `hook` outlives it.
  explicit PowerSgdOfAll(PowerSgd& hook) : hook_(hook) {}

  Tensors SaveState() const override;
  absl::Status RestoreState(const Tensors& state) override { return hook_.RestoreState(state); }

 private:
  PowerSgd& hook_;
};

// All that a step may change of it: Q is changed in place, errors are replaced.
CheckpointedState::Tensors KeepPowerSgd(const PowerSgd& hook);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_POWER_SGD_OF_ALL_H_
