#ifndef DDPRUN_WORKER_TORCH_SESSION_OWN_STATES_H_
#define DDPRUN_WORKER_TORCH_SESSION_OWN_STATES_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/own_state.h"

namespace ddprun::worker {

// The program's own states in a Session. They change between steps, when it likes; a step that is
// done again begins with what they were at its beginning. Threads: one.
class OwnStates {
 public:
  // Copies of all of them, by name.
  using Kept = std::map<std::string, CheckpointedState::Tensors>;

  // Errors: INVALID_ARGUMENT — the name is taken, empty or has a '.' or '/'; the state differs by
  // rank, so that no other rank could give it to a new worker.
  absl::Status Add(const std::string& name, const OwnState& state);
  bool empty() const { return states_.empty(); }

  // For checkpoints and new workers: those of the Session itself, and these.
  std::map<std::string, CheckpointedState*> Beside(
      std::map<std::string, CheckpointedState*> others) const;

  Kept Keep() const;
  // Errors: those of a state of the program's.
  absl::Status PutBack(const Kept& kept) const;

 private:
  std::map<std::string, std::unique_ptr<CheckpointedState>> states_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_OWN_STATES_H_
