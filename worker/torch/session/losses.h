#ifndef DDPRUN_WORKER_TORCH_SESSION_LOSSES_H_
#define DDPRUN_WORKER_TORCH_SESSION_LOSSES_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/context.h"

namespace ddprun::worker {

// The losses of this rank's steps: their mean over an epoch, and where they stopped being finite.
// Threads: one.
class Losses {
 public:
  struct Mean {
    double loss = 0;
    int64_t samples = 0;  // of the mean
  };

  // Params: session: the number of the Session in its process, the same on all ranks.
  explicit Losses(uint64_t session);

  // Call it after each step. Params: loss: mean over this rank's `samples` samples of the step, on
  // any device; undefined = none. Begins the mean anew at a step of another epoch, and at one that
  // is done again because training went back.
  void Add(uint64_t epoch, int64_t step, const torch::Tensor& loss, int64_t samples);

  // The mean loss of an epoch's samples, over all ranks; without the samples of a worker that is
  // gone and those from before a resume. A collective. Returns nullopt if no rank has a loss.
  // Errors: UNAVAILABLE — a peer is gone.
  absl::StatusOr<std::optional<Mean>> MeanOfEpoch(Context& context) const;

  // On CPUs: notes where the losses stop being finite, for the error of a later step. For losses of
  // steps that the optimizer took.
  void Note(Context& context, int64_t step, const torch::Tensor& loss);
  // Reads the loss: an error when it isn't finite. The error names the rank that had the first one.
  absl::Status Check(Context& context, int64_t step, const torch::Tensor& loss,
                     torch::nn::Module& model) const;
  // Steps from here on are done again.
  void GoBack() { not_finite_since_ = 0; }

 private:
  std::string key_;  // of the note in the generation's store
  std::optional<uint64_t> epoch_;
  int64_t step_ = 0;   // the last one
  torch::Tensor sum_;  // of the samples' losses: [] double, undefined = none yet
  int64_t samples_ = 0;
  int64_t not_finite_since_ = 0;  // the step from which on the losses weren't; 0 = they are
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_LOSSES_H_
