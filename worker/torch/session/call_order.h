#ifndef DDPRUN_WORKER_TORCH_SESSION_CALL_ORDER_H_
#define DDPRUN_WORKER_TORCH_SESSION_CALL_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ddprun::worker {

// The error of a program that calls methods in a wrong order.
inline absl::Status Misuse(const std::string& what) { return absl::FailedPreconditionError(what); }

// Decides which call of a Session's program is allowed next, and names the call that is missing.
//
//   kUnprepared --Prepare--> kBetweenBatches --Advance--> kBatch --Backward--> kBackwardDone
//                                   ^                                               |
//                                   +--------------------- Step --------------------+
//
// Advance leads to kEnded when training is over. With several modules, StepOf leads from
// kBackwardDone to kBatch, for the next module's backward pass.
//
// The functions called Check… change nothing; their errors are Misuse(). Pure.
class CallOrder {
 public:
  enum class Place { kUnprepared, kBetweenBatches, kBatch, kBackwardDone, kEnded };

  Place place() const { return place_; }
  bool is_prepared() const { return place_ != Place::kUnprepared; }

  // Params: parts: the number of modules.
  void Prepare(size_t parts);

  // `step`: the last one that was done.
  absl::Status CheckAdvance(int64_t step) const;
  void OpenBatch();
  void End() { place_ = Place::kEnded; }

  // Returns whether this is a forward pass of training. is_graded: gradients are enabled.
  bool NoteForward(size_t part, bool is_graded);

  // Params: of: the module whose loss it is; nullopt = all modules'.
  absl::Status CheckBackward(std::optional<size_t> of) const;
  void NoteBackward(std::optional<size_t> of);

  // With several modules: the step of one. `name`: the module's.
  absl::Status CheckStepOf(size_t part, const std::string& name) const;
  void NoteStepOf(size_t part);

  absl::Status CheckStep() const;
  absl::Status CheckStepWithFunction() const;
  // step_is_over: the step has no other batches.
  absl::Status CheckSave(bool step_is_over) const;
  // Step(), or the batch's step will be done again: no batch is open.
  void CloseBatch();

 private:
  // A module's calls in the current batch.
  struct Calls {
    bool forward = false;
    bool ungraded = false;  // a forward pass without gradients, as under a NoGradGuard
    bool backward = false;  // since this module's last step
  };

  Place place_ = Place::kUnprepared;
  std::vector<Calls> calls_;      // by module
  bool has_stepped_one_ = false;  // in this batch, of several modules
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_CALL_ORDER_H_
