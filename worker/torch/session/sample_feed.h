#ifndef DDPRUN_WORKER_TORCH_SESSION_SAMPLE_FEED_H_
#define DDPRUN_WORKER_TORCH_SESSION_SAMPLE_FEED_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/dataset.h"
#include "ddprun/elastic_loader.h"
#include "ddprun/elastic_sampler.h"
#include "ddprun/training_options.h"

namespace ddprun::worker {

// The samples of one backward pass.
struct Pass {
  Batch batch;
  double weight = 1;  // of the pass' mean loss in the step's gradient, among all passes and ranks
  double share = 1;   // of the pass in this rank's samples of the step
};

// Decides which samples this rank learns from in each step, and in which passes; reads them ahead.
// Each sample is learned from exactly once an epoch, whatever happens to the ranks.
//
// As a part of checkpoints it is the training's place in its data: "sampler", U8, the text of
// SamplerState::Serialize, which Python's sampler reads, too.
// Threads: one; its own load the batches, with `options` and the data, which a new generation
// doesn't change.
class SampleFeed : public CheckpointedState {
 public:
  using Passes = std::vector<Pass>;
  using Step = ElasticLoader<Passes>::Step;

  // Requires: `options` outlive it.
  SampleFeed(const TrainingOptions& options, Dataset data, uint32_t rank, uint32_t world_size);
  // Begins to read. Errors: as ElasticSampler::Create's.
  absl::Status Begin();
  // Ends the threads; its place stays.
  void End() { loader_.reset(); }

  const Dataset& data() const { return data_; }
  // Where training is in its data: after the last committed step.
  const SamplerState& place() const { return place_; }
  // Samples of one rank in one step, at the number of workers with which training began.
  int64_t BatchPerRank() const {
    return options_.batch_size * options_.gradient_accumulation_steps;
  }
  int64_t GlobalBatch() const;  // samples of all ranks in one step
  int64_t StepsPerEpoch() const { return (data_.size + GlobalBatch() - 1) / GlobalBatch(); }
  // Whether a step has as many samples for any number of workers.
  bool is_constant() const { return constant_batch_ > 0; }
  // If is_constant(), takes the number of samples of a step from a checkpoint or another rank.
  // Returns whether it was another one.
  absl::StatusOr<bool> TakeGlobalBatch(int64_t samples);

  // Batches that were read ahead are dealt anew, for another number of ranks.
  absl::Status Reform(uint32_t rank, uint32_t world_size);
  // Goes on at this place. Errors: FAILED_PRECONDITION — it is of other data.
  absl::Status GoTo(const SamplerState& place);

  // Waits for the next step. `batch`: a pass for each backward pass, the next one last.
  absl::StatusOr<Step> Next();
  // Counts the step's samples as learned from.
  absl::Status Commit(const StepShare& share);

  Tensors SaveState() const override;
  // Errors: as ElasticSampler::Restore's.
  absl::Status RestoreState(const Tensors& state) override;

 private:
  // This rank's passes of a step. Threads: any.
  absl::StatusOr<Passes> LoadPasses(const StepShare& share) const;
  Pass LoadPass(const StepShare& share, uint64_t begin, uint64_t count) const;

  const TrainingOptions& options_;
  const Dataset data_;
  uint32_t rank_;
  uint32_t world_size_;
  int64_t constant_batch_ = 0;  // samples of a step; 0 = they depend on the number of workers
  SamplerState place_;
  std::unique_ptr<ElasticLoader<Passes>> loader_;  // null: not begun, or ended
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_SAMPLE_FEED_H_
