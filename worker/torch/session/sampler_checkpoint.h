#ifndef DDPRUN_WORKER_TORCH_SESSION_SAMPLER_CHECKPOINT_H_
#define DDPRUN_WORKER_TORCH_SESSION_SAMPLER_CHECKPOINT_H_

#include <functional>
#include <utility>

#include "ddprun/checkpointed_state.h"
#include "ddprun/elastic_sampler.h"

namespace ddprun::worker {

// The training's place in its data, as a part of checkpoints: "sampler", U8, the text of
// SamplerState::Serialize, which Python's sampler reads, too. Threads: one.
class SamplerCheckpoint : public CheckpointedState {
 public:
  SamplerCheckpoint(std::function<SamplerState()> get,
                    std::function<absl::Status(const SamplerState&)> restore)
      : get_(std::move(get)), restore_(std::move(restore)) {}

  Tensors SaveState() const override;
  // Errors: as ElasticSampler::Restore's.
  absl::Status RestoreState(const Tensors& state) override;

 private:
  const std::function<SamplerState()> get_;
  const std::function<absl::Status(const SamplerState&)> restore_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_SAMPLER_CHECKPOINT_H_
