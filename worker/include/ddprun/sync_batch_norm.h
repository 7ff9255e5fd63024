#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_SYNC_BATCH_NORM_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_SYNC_BATCH_NORM_H_

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "ddprun/context.h"

namespace ddprun::nn {

// The options of torch.nn.SyncBatchNorm, with its defaults.
struct SyncBatchNormOptions {
  double eps = 1e-5;                     // added to the variance
  std::optional<double> momentum = 0.1;  // of the running statistics; unset: their plain average
  bool affine = true;                    // has weight and bias
  bool track_running_stats = true;       // for evaluation; false: batches' own statistics there too
};

// Batch normalization over the batches of all ranks together, for small batches, where the
// statistics of a single rank would be too noisy. Unlike torch's it also runs on CPUs.
//
// In training, its forward and backward pass are collectives: every rank must run it the same
// number of times, with any number of samples, even 0. The result is that of BatchNorm on the
// joined batch. In evaluation, and in a world of one, it is BatchNorm. Not inside Join, where ranks
// without inputs run no modules.
//
// There is no convert_sync_batchnorm, because a C++ module holds its children by their types. Use
// SyncBatchNorm in the model's definition.
class SyncBatchNormImpl : public torch::nn::Cloneable<SyncBatchNormImpl> {
 public:
  // Params: features: channels, from 1. Requires: the context outlives the module's last use.
  SyncBatchNormImpl(int64_t features, Context& context, const SyncBatchNormOptions& options = {});

  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  // input: [n, features, ...], float, double, half or bfloat16, on the context's device; n may be
  // 0. Output: the same shape and type. Statistics are computed in float, or double for double.
  // Errors: throws c10::Error when the shape doesn't fit, or all ranks together have one value a
  // channel; and, as a collective does, when a peer is gone.
  torch::Tensor forward(const torch::Tensor& input);

  torch::Tensor weight;  // [features], ones at the start; undefined without affine
  torch::Tensor bias;    // [features], zeros at the start; undefined without affine
  // [features], [features] and a count; undefined without track_running_stats. As BatchNorm's, the
  // running variance is the unbiased one.
  torch::Tensor running_mean;
  torch::Tensor running_var;
  torch::Tensor num_batches_tracked;

 private:
  struct Statistics;

  Statistics JoinedStatistics(const torch::Tensor& input) const;
  void Track(const Statistics& statistics);

  int64_t features_;
  Context* context_;
  SyncBatchNormOptions options_;
};

TORCH_MODULE(SyncBatchNorm);

}  // namespace ddprun::nn

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_SYNC_BATCH_NORM_H_
