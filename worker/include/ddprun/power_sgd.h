#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_POWER_SGD_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_POWER_SGD_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/communication_hook.h"
#include "ddprun/group.h"

namespace ddprun {

// The names and, but for the epsilon, the defaults of PyTorch's PowerSGDState.
struct PowerSgdOptions {
  // Rank of the matrices that approximate a gradient, from 1. A higher one is more exact and sends
  // more bytes.
  int64_t matrix_approximation_rank = 1;
  // Steps of plain averaging at the beginning, where gradients change the most; at least 2, as
  // buckets are cut anew after the first.
  int64_t start_step = 1000;
  // A parameter of n x m is compressed when (n + m) * rank * this < n * m; at least 0.
  double min_compression_rate = 2;
  // The error of the compression is added to the next step's gradient. Without it training may not
  // converge.
  bool error_feedback = true;
  // Starts each step from the last one's matrices instead of random ones.
  bool warm_start = true;
  // Added to the length of a column before dividing by it, for gradients with columns of zeros.
  double orthogonalization_epsilon = 1e-8;
  // The seed of the first random matrices; the same on every rank.
  uint64_t seed = 0;
};

// Sends gradients as products of two thin matrices: a fraction of the bytes, for slow networks.
// Training may converge worse than with plain averaging; start with rank 1, and double the rank
// until it doesn't.
// Source: Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019 (arXiv:1905.13727), and torch 2.11's
// powerSGD_hook. Differences: random numbers are ATen's, and parameters that aren't compressed have
// no error that is carried over.
// Add it to a Checkpointer, beside DistributedDataParallel::buckets(), to resume bit by bit after a
// restart. Otherwise, and on another number of ranks (each rank has errors of its own), it begins
// with start_step plain steps again.
// Threads: that of one DistributedDataParallel; saving and restoring between its steps.
class PowerSgd : public CommunicationHook, public CheckpointedState {
 public:
  explicit PowerSgd(const PowerSgdOptions& options = {});
  ~PowerSgd() override;

  std::string name() const override { return "power_sgd"; }
  // Errors, on the first call: INVALID_ARGUMENT — an option is out of its range.
  absl::Status Average(GradientBucket& bucket, Group& group) override;

  Tensors SaveState() const override;
  absl::Status RestoreState(const Tensors& state) override;
  bool differs_by_rank() const override { return true; }

  // The share of the values that was sent since compression began, above 0; 1 before.
  // Threads: any.
  double sent_share() const;

 private:
  struct Implementation;

  std::unique_ptr<Implementation> implementation_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_POWER_SGD_H_
