#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_ELASTIC_SAMPLER_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_ELASTIC_SAMPLER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// Where training is in its data, for any number of ranks (docs/DATA.md).
struct SamplerState {
  uint64_t dataset_size = 0;  // samples
  uint64_t seed = 0;
  bool shuffle = true;
  uint64_t epoch = 0;
  uint64_t consumed = 0;  // how many samples of the epoch's order, from its start, are learned from

  // One line of text, the same as Python's ElasticSampler.state_text().
  std::string Serialize() const;
  // Errors: INVALID_ARGUMENT — the text isn't one of Serialize(), is of another version, or has
  // impossible values (consumed >= dataset_size), which the message names.
  static absl::StatusOr<SamplerState> Parse(absl::string_view text);

  friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

struct ElasticSamplerOptions {
  uint64_t seed = 0;
  bool shuffle = true;  // false: the samples in their own order
  // Set exactly one, 1 to 2^31 - 1 samples. global_batch: samples of a step over all ranks, for any
  // number of them, so that training is the same. batch_per_rank: a step has world_size times that.
  uint64_t global_batch = 0;
  uint64_t batch_per_rank = 0;
};

// A rank's samples of one training step.
struct StepShare {
  uint64_t epoch = 0;
  uint64_t first = 0;            // the place of the step's first sample in the epoch's order
  uint64_t global_count = 0;     // samples of all ranks
  uint64_t largest_count = 0;    // samples of the first ranks: at most one more than the others'
  std::vector<int64_t> indices;  // this rank's samples; empty if ranks outnumber what is left
  // The weight of this rank's mean loss, so that the mean of all ranks' gradients is that of all
  // samples: count × world size / global_count; 1 if ranks have as many each, 0 without samples.
  double weight = 0;
  bool last_of_epoch = false;
  uint64_t deal = 0;  // counts Reform() and Restore(), so that Commit() refuses older shares
};

// Deals the samples of a data set to ranks that come and go, each sample exactly once an epoch. The
// order depends on seed and epoch only; a step takes the next global batch of it, and each rank
// gets a slice. The rest at the end of an epoch is dealt as evenly as possible: nothing is repeated
// or left out. All ranks must make the same calls in the same order. Threads: one.
//
// Only committed samples count as consumed. A DataLoader with four workers has taken eight batches
// from its sampler before the loop sees one; counting those would lose them at each restart. The
// state is a prefix of the epoch's order, independent of the number of ranks.
class ElasticSampler {
 public:
  // Begins at epoch 0. Errors: INVALID_ARGUMENT — no or more than 2^62 samples, not exactly one
  // kind of batch, rank >= world_size.
  static absl::StatusOr<ElasticSampler> Create(uint64_t dataset_size,
                                               const ElasticSamplerOptions& options, uint32_t rank,
                                               uint32_t world_size);

  // Deals the share of the next step that wasn't dealt. Shares can be dealt ahead, over the end of
  // an epoch too; that commits nothing.
  StepShare Deal();

  // Call it when the step is done on all ranks: its samples count as consumed.
  // Errors: FAILED_PRECONDITION — `share` isn't of the step after the last committed one, or was
  // dealt before the last Reform() or Restore(); nothing was changed.
  absl::Status Commit(const StepShare& share);

  // Goes on from the last committed step with another rank and number of ranks; what was dealt
  // ahead is dealt anew. Errors: INVALID_ARGUMENT — rank >= world_size; nothing was changed.
  absl::Status Reform(uint32_t rank, uint32_t world_size);

  // Goes on from a state, with its seed; what was dealt ahead is dealt anew.
  // Errors: FAILED_PRECONDITION — the state is of a data set of another size, or with another
  // `shuffle`; INVALID_ARGUMENT — impossible values; nothing was changed.
  absl::Status Restore(const SamplerState& state);

  // The committed state: all that a checkpoint needs, the same on all ranks.
  const SamplerState& state() const { return committed_; }
  uint32_t rank() const { return rank_; }
  uint32_t world_size() const { return world_size_; }

  // How many of a step's `global_count` samples a rank gets: the first ranks get one more if
  // world_size doesn't divide it. Requires: rank < world_size.
  static uint64_t CountOf(uint64_t global_count, uint32_t rank, uint32_t world_size);

 private:
  ElasticSampler() = default;
  uint64_t GlobalBatch() const;
  // How many samples the step at `consumed` has.
  uint64_t CountAt(uint64_t consumed) const;
  void DealAnew();

  SamplerState committed_;
  uint64_t global_batch_ = 0;
  uint64_t batch_per_rank_ = 0;
  uint32_t rank_ = 0;
  uint32_t world_size_ = 1;
  // The next step to deal, at or behind the committed one.
  uint64_t next_epoch_ = 0;
  uint64_t next_first_ = 0;
  uint64_t deal_ = 0;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_ELASTIC_SAMPLER_H_
