#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_OWN_STATE_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_OWN_STATE_H_

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ddprun/checkpointed_state.h"

namespace ddprun {

// A reference to a state that a program keeps between the steps of a Session: a number, a text, a
// list of numbers, a tensor, or a CheckpointedState. Made implicitly for Session::Add:
//
//   int64_t patience = 3;
//   session.Add("patience", patience);
//
// Requires: the state outlives the Session.
class OwnState {
 public:
  OwnState(CheckpointedState& state);  // NOLINT(google-explicit-constructor)
  // NOLINTBEGIN(google-explicit-constructor)
  OwnState(bool& value);
  OwnState(int& value);
  OwnState(int64_t& value);
  OwnState(double& value);
  OwnState(std::string& value);
  OwnState(std::vector<int64_t>& values);
  OwnState(std::vector<double>& values);
  OwnState(torch::Tensor& value);  // may change its shape
  // NOLINTEND(google-explicit-constructor)

  // For the Session: as CheckpointedState's.
  CheckpointedState::Tensors Save() const { return save_(); }
  absl::Status Restore(const CheckpointedState::Tensors& state) const { return restore_(state); }
  bool differs_by_rank() const { return differs_by_rank_; }

 private:
  template <typename Value>
  void Refer(Value& value);

  std::function<CheckpointedState::Tensors()> save_;
  std::function<absl::Status(const CheckpointedState::Tensors&)> restore_;
  bool differs_by_rank_ = false;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_OWN_STATE_H_
