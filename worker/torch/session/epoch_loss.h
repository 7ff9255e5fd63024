#ifndef DDPRUN_WORKER_TORCH_SESSION_EPOCH_LOSS_H_
#define DDPRUN_WORKER_TORCH_SESSION_EPOCH_LOSS_H_

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "ddprun/context.h"

namespace ddprun::worker {

// The mean loss of an epoch's samples, over all ranks. Of what a worker has seen that is gone, and
// of what was learned before a resume, nothing is known. Threads: one.
class EpochLoss {
 public:
  // After each step. Params: loss: mean over this rank's `samples` samples of the step, on any
  // device; undefined = none. A step of another epoch, or one that is done again because training
  // went back, begins anew.
  void Add(uint64_t epoch, int64_t step, const torch::Tensor& loss, int64_t samples);

  // A collective. Nothing: no rank has a loss. Errors: UNAVAILABLE — a peer is gone.
  absl::StatusOr<std::optional<double>> Mean(Context& context) const;

 private:
  std::optional<uint64_t> epoch_;
  int64_t step_ = 0;   // the last one
  torch::Tensor sum_;  // of the samples' losses: [] double, undefined = none yet
  int64_t samples_ = 0;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_EPOCH_LOSS_H_
