#ifndef DDPRUN_WORKER_TORCH_SESSION_OWN_STATES_H_
#define DDPRUN_WORKER_TORCH_SESSION_OWN_STATES_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/own_state.h"

namespace ddprun::worker {

// The program's own states in a Session. The program changes them at any time between steps; a step
// that is done again begins with the values that they had at its beginning. Threads: one.
class OwnStates {
 public:
  // Copies of all states, by name.
  using Kept = std::map<std::string, CheckpointedState::Tensors>;

  // Errors: INVALID_ARGUMENT — the name is taken, empty or has a '.' or '/'; the state differs by
  // rank, so that no other rank could give it to a new worker.
  absl::Status Add(const std::string& name, const OwnState& state);
  bool empty() const { return states_.empty(); }

  // All states for checkpoints and new workers: `others`, which are the Session's, and these.
  std::map<std::string, CheckpointedState*> Beside(
      std::map<std::string, CheckpointedState*> others) const;

  Kept Keep() const;
  // Errors: those of the states' RestoreState.
  absl::Status PutBack(const Kept& kept) const;

 private:
  std::map<std::string, std::unique_ptr<CheckpointedState>> states_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_OWN_STATES_H_
