#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_CHECKPOINTED_STATE_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_CHECKPOINTED_STATE_H_

#include <torch/types.h>

#include <map>
#include <string>

#include "absl/status/status.h"

namespace ddprun {

// Something that a checkpoint keeps beside module and optimizer: GradScaler, PowerSgd, or what a
// program has of its own (see Checkpointer::Add).
class CheckpointedState {
 public:
  using Tensors = std::map<std::string, torch::Tensor>;

  virtual ~CheckpointedState() = default;

  // Everything that a run which goes on with it needs, by names without '/'.
  virtual Tensors SaveState() const = 0;

  // Takes what SaveState gave, as tensors in CPU memory.
  // Errors: FAILED_PRECONDITION — it isn't that, or of other options; nothing was changed.
  virtual absl::Status RestoreState(const Tensors& state) = 0;

  // Whether ranks have different states. If so each one's is kept, and restored only on as many
  // ranks as saved it; else rank 0's is everyone's.
  virtual bool differs_by_rank() const { return false; }

 protected:
  CheckpointedState() = default;
  CheckpointedState(const CheckpointedState&) = default;
  CheckpointedState& operator=(const CheckpointedState&) = default;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_CHECKPOINTED_STATE_H_
