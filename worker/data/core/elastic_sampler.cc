#include "ddprun/elastic_sampler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "ddprun/keyed_permutation.h"
#include "worker/data/core/sampler_check.h"

namespace ddprun {
namespace {

constexpr uint64_t kBatchMax = (uint64_t{1} << 31) - 1;

// The first sample of a rank's slice of a step.
uint64_t OffsetOf(uint64_t global_count, uint32_t rank, uint32_t world_size) {
  return global_count / world_size * rank + std::min<uint64_t>(rank, global_count % world_size);
}

absl::Status CheckPlace(uint32_t rank, uint32_t world_size) {
  if (rank < world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a sampler's rank is ", rank, ", and must be below the world size, ", world_size));
}

absl::Status CheckBatch(const ElasticSamplerOptions& options) {
  const uint64_t batch = std::max(options.global_batch, options.batch_per_rank);
  if ((options.global_batch == 0) != (options.batch_per_rank == 0) && batch <= kBatchMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a sampler needs either global_batch or batch_per_rank, of 1 to ", kBatchMax,
                   " samples; global_batch is ", options.global_batch, ", batch_per_rank ",
                   options.batch_per_rank));
}

}  // namespace

absl::StatusOr<ElasticSampler> ElasticSampler::Create(uint64_t dataset_size,
                                                      const ElasticSamplerOptions& options,
                                                      uint32_t rank, uint32_t world_size) {
  DDPRUN_RETURN_IF_ERROR(CheckBatch(options));
  DDPRUN_RETURN_IF_ERROR(CheckPlace(rank, world_size));
  ElasticSampler sampler;
  sampler.committed_ = {
      .dataset_size = dataset_size, .seed = options.seed, .shuffle = options.shuffle};
  DDPRUN_RETURN_IF_ERROR(CheckSamplerState(sampler.committed_));
  sampler.global_batch_ = options.global_batch;
  sampler.batch_per_rank_ = options.batch_per_rank;
  sampler.rank_ = rank;
  sampler.world_size_ = world_size;
  return sampler;
}

uint64_t ElasticSampler::CountOf(uint64_t global_count, uint32_t rank, uint32_t world_size) {
  DDPRUN_CHECK(rank < world_size, "a rank lies below its world size");
  return global_count / world_size + (rank < global_count % world_size ? 1 : 0);
}

uint64_t ElasticSampler::GlobalBatch() const {
  return global_batch_ > 0 ? global_batch_ : batch_per_rank_ * world_size_;
}

uint64_t ElasticSampler::CountAt(uint64_t consumed) const {
  return std::min(GlobalBatch(), committed_.dataset_size - consumed);
}

StepShare ElasticSampler::Deal() {
  const uint64_t size = committed_.dataset_size;
  StepShare share{.epoch = next_epoch_,
                  .first = next_first_,
                  .global_count = CountAt(next_first_),
                  .largest_count = CountOf(CountAt(next_first_), /*rank=*/0, world_size_),
                  .indices = {},
                  .deal = deal_};
  const uint64_t count = CountOf(share.global_count, rank_, world_size_);
  const uint64_t begin = share.first + OffsetOf(share.global_count, rank_, world_size_);
  const KeyedPermutation order(size, committed_.seed, share.epoch);
  share.indices.reserve(count);
  for (uint64_t place = begin; place < begin + count; ++place) {
    share.indices.push_back(static_cast<int64_t>(committed_.shuffle ? order.At(place) : place));
  }
  share.weight = static_cast<double>(count) * world_size_ / static_cast<double>(share.global_count);
  next_first_ += share.global_count;
  share.last_of_epoch = next_first_ == size;
  if (share.last_of_epoch) {
    next_first_ = 0;
    ++next_epoch_;
  }
  return share;
}

absl::Status ElasticSampler::Commit(const StepShare& share) {
  if (share.deal != deal_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the step at sample ", share.first, " of epoch ", share.epoch,
        " was dealt before the last Reform() or Restore(): deal it anew and train it again"));
  }
  if (share.epoch != committed_.epoch || share.first != committed_.consumed) {
    return absl::FailedPreconditionError(
        absl::StrCat("the step at sample ", share.first, " of epoch ", share.epoch,
                     " can't be committed: the next one is that at sample ", committed_.consumed,
                     " of epoch ", committed_.epoch, "; commit each step once, in order"));
  }
  committed_.consumed += CountAt(committed_.consumed);
  if (committed_.consumed == committed_.dataset_size) {
    committed_.consumed = 0;
    ++committed_.epoch;
  }
  return absl::OkStatus();
}

void ElasticSampler::DealAnew() {
  next_epoch_ = committed_.epoch;
  next_first_ = committed_.consumed;
  ++deal_;
}

absl::Status ElasticSampler::Reform(uint32_t rank, uint32_t world_size) {
  DDPRUN_RETURN_IF_ERROR(CheckPlace(rank, world_size));
  rank_ = rank;
  world_size_ = world_size;
  DealAnew();
  return absl::OkStatus();
}

absl::Status ElasticSampler::Restore(const SamplerState& state) {
  if (state.dataset_size != committed_.dataset_size) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the state is of a data set of ", state.dataset_size, " samples, and this one has ",
        committed_.dataset_size, ": which samples were learned from would no longer be known; ",
        "resume with the same data, or begin an epoch of the new data with a new sampler"));
  }
  if (state.shuffle != committed_.shuffle) {
    return absl::FailedPreconditionError(
        absl::StrCat("the state is of a sampler with shuffle ", state.shuffle ? "on" : "off",
                     ", and this one has it ", committed_.shuffle ? "on" : "off",
                     ": the order would be another one; resume with the same option"));
  }
  DDPRUN_RETURN_IF_ERROR(CheckSamplerState(state));
  committed_ = state;
  DealAnew();
  return absl::OkStatus();
}

}  // namespace ddprun
