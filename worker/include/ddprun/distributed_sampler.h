#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_DISTRIBUTED_SAMPLER_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_DISTRIBUTED_SAMPLER_H_

#include <cstdint>
#include <vector>

namespace ddprun {

struct DistributedSamplerOptions {
  uint64_t seed = 0;
  bool shuffle = true;
  // If the number of ranks doesn't divide the samples: true = the last ones are left out; false =
  // the first ones of the epoch are used once more.
  bool drop_last = false;
};

// Deals an epoch's samples to ranks as Python's DistributedSampler does: rank r gets places r, r +
// world_size, … of one order that seed and epoch determine (another order than Python's). So the
// global batch number b has the same samples at every world size that divides its size. Threads:
// one.
class DistributedSampler {
 public:
  // Requires: rank < world_size.
  DistributedSampler(uint64_t dataset_size, uint32_t rank, uint32_t world_size,
                     const DistributedSamplerOptions& options = {});

  // Sets the epoch, 0 at first; every epoch has another order.
  void SetEpoch(uint64_t epoch) { epoch_ = epoch; }

  // This rank's samples of the current epoch, in order.
  std::vector<int64_t> Indices() const;

  // How many samples every rank sees in an epoch.
  uint64_t samples_per_rank() const { return samples_per_rank_; }

 private:
  // The order of the whole epoch, before padding.
  std::vector<int64_t> Order() const;

  uint64_t dataset_size_;
  uint32_t rank_;
  uint32_t world_size_;
  DistributedSamplerOptions options_;
  uint64_t samples_per_rank_;
  uint64_t epoch_ = 0;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_DISTRIBUTED_SAMPLER_H_
