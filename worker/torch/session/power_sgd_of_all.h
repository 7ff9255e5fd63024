#ifndef DDPRUN_WORKER_TORCH_SESSION_POWER_SGD_OF_ALL_H_
#define DDPRUN_WORKER_TORCH_SESSION_POWER_SGD_OF_ALL_H_

#include "absl/status/status.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/power_sgd.h"

namespace ddprun::worker {

// The part of a PowerSgd's state that is the same on all ranks, which a new worker gets from the
// others: the step, which decides whether gradients are compressed, and the matrices Q, by which
// all ranks compress. A rank's errors of compression aren't in it: a new worker begins without any.
// Threads: as PowerSgd's.
class PowerSgdOfAll : public CheckpointedState {
 public:
  // `hook` outlives this.
  explicit PowerSgdOfAll(PowerSgd& hook) : hook_(hook) {}

  Tensors SaveState() const override;
  absl::Status RestoreState(const Tensors& state) override { return hook_.RestoreState(state); }

 private:
  PowerSgd& hook_;
};

// Copies all that a step may change of a PowerSgd: Q is changed in place, errors are replaced.
CheckpointedState::Tensors KeepPowerSgd(const PowerSgd& hook);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_POWER_SGD_OF_ALL_H_
