#include "ddprun/distributed_sampler.h"

#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace ddprun {
namespace {

// Far apart for neighbouring seeds and epochs alike.
uint64_t SeedOf(uint64_t seed, uint64_t epoch) {
  Rng mix(seed);
  return mix.Next() ^ Rng(~epoch).Next();
}

}  // namespace

DistributedSampler::DistributedSampler(uint64_t dataset_size, uint32_t rank, uint32_t world_size,
                                       const DistributedSamplerOptions& options)
    : dataset_size_(dataset_size), rank_(rank), world_size_(world_size), options_(options) {
  DDPRUN_CHECK(rank < world_size, "a sampler's rank lies below its world size");
  const uint64_t rounding = options.drop_last ? 0 : world_size - 1;
  samples_per_rank_ = (dataset_size + rounding) / world_size;
}

std::vector<int64_t> DistributedSampler::Order() const {
  std::vector<int64_t> order(dataset_size_);
  std::iota(order.begin(), order.end(), 0);
  if (!options_.shuffle) return order;
  Rng rng(SeedOf(options_.seed, epoch_));
  // The Fisher-Yates shuffle.
  for (uint64_t i = dataset_size_; i > 1; --i) std::swap(order[i - 1], order[rng.Below(i)]);
  return order;
}

std::vector<int64_t> DistributedSampler::Indices() const {
  const std::vector<int64_t> order = Order();
  std::vector<int64_t> indices;
  indices.reserve(samples_per_rank_);
  for (uint64_t i = 0; i < samples_per_rank_; ++i) {
    indices.push_back(order[(i * world_size_ + rank_) % dataset_size_]);
  }
  return indices;
}

}  // namespace ddprun
