#ifndef DDPRUN_WORKER_TORCH_SESSION_EPOCH_LOSS_H_
#define DDPRUN_WORKER_TORCH_SESSION_EPOCH_LOSS_H_

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "ddprun/context.h"

namespace ddprun::worker {

// The mean loss of an epoch's samples, over all ranks; without the samples of a worker that is gone
// and those from before a resume. Threads: one.
class EpochLoss {
 public:
  struct Result {
    double loss = 0;
    int64_t samples = 0;  // of the mean
  };

  // Call it after each step. Params: loss: mean over this rank's `samples` samples of the step, on
  // any device; undefined = none. Begins anew at a step of another epoch, and at one that is done
  // again because training went back.
  void Add(uint64_t epoch, int64_t step, const torch::Tensor& loss, int64_t samples);

  // A collective. Returns nullopt if no rank has a loss. Errors: UNAVAILABLE — a peer is gone.
  absl::StatusOr<std::optional<Result>> Mean(Context& context) const;

 private:
  std::optional<uint64_t> epoch_;
  int64_t step_ = 0;   // the last one
  torch::Tensor sum_;  // of the samples' losses: [] double, undefined = none yet
  int64_t samples_ = 0;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_EPOCH_LOSS_H_
