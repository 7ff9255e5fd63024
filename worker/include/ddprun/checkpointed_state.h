#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_CHECKPOINTED_STATE_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_CHECKPOINTED_STATE_H_

#include <torch/types.h>

#include <map>
#include <string>

#include "absl/status/status.h"

namespace ddprun {

// A state that a checkpoint keeps beside module and optimizer: a GradScaler's, a PowerSgd's, or the
// program's own (see Checkpointer::Add).
class CheckpointedState {
 public:
  using Tensors = std::map<std::string, torch::Tensor>;

  virtual ~CheckpointedState() = default;

  // Returns all that a resumed run needs, by names without '/'.
  virtual Tensors SaveState() const = 0;

  // Takes the tensors of a SaveState, in CPU memory.
  // Errors: FAILED_PRECONDITION — they are of another class or other options; nothing was changed.
  virtual absl::Status RestoreState(const Tensors& state) = 0;

  // Whether ranks have different states. If so, each rank's is saved, and restored only on the same
  // number of ranks; else all ranks get rank 0's.
  virtual bool differs_by_rank() const { return false; }

 protected:
  CheckpointedState() = default;
  CheckpointedState(const CheckpointedState&) = default;
  CheckpointedState& operator=(const CheckpointedState&) = default;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_CHECKPOINTED_STATE_H_
