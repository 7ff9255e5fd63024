#ifndef DDPRUN_WORKER_TORCH_SESSION_SESSION_FIELDS_H_
#define DDPRUN_WORKER_TORCH_SESSION_SESSION_FIELDS_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/autocast.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/elastic_loader.h"
#include "ddprun/exponential_moving_average.h"
#include "ddprun/grad_scaler.h"
#include "ddprun/learning_rate.h"
#include "ddprun/metrics.h"
#include "ddprun/power_sgd.h"
#include "ddprun/session.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/checkpoint/healing.h"
#include "worker/torch/checkpoint/shard_replicas.h"
#include "worker/torch/session/checkpointed_parts.h"
#include "worker/torch/session/epoch_loss.h"
#include "worker/torch/session/journal.h"
#include "worker/torch/session/own_states.h"
#include "worker/torch/session/save_clock.h"
#include "worker/torch/session/session_step.h"

namespace ddprun::worker {

// The data of a Session. Members die in reverse order: the context last.
struct SessionFields {
  // Where the program is in its loop.
  enum class Place { kUnprepared, kBetweenBatches, kBatch, kBackwardDone, kEnded };

  using Pass = worker::Pass;

  explicit SessionFields(SessionOptions options_in) : settings(std::move(options_in)) {}

  const SessionOptions settings;
  const TrainingOptions& options = settings.training;
  std::shared_ptr<Context> job;      // the process' context if this Session goes alone; else null
  std::shared_ptr<Context> context;  // of the ranks that train: the process' context, or its own
  uint64_t session_number = 1;       // of the process' Sessions, from 1
  worker::Journal journal;
  Place place = Place::kUnprepared;

  std::vector<worker::SessionPart> parts;    // what is trained
  std::shared_ptr<torch::nn::Module> model;  // all of it; null before Prepare
  worker::OwnStates own;
  worker::LoopMarks loop_marks;
  Dataset data;
  std::vector<std::string> facts;         // must be the same on all ranks (start_note.h)
  std::vector<std::string> sample_facts;  // should be the same
  std::vector<Evaluation> evaluations;
  std::string last_evaluation;                  // its text for people
  std::function<double(int64_t step)> rate_of;  // null: the schedule
  MixedPrecision precision = MixedPrecision::kNo;
  LearningRateSchedule schedule;
  // Made when the model is on its device. zero: the same object as optimizer, with a zero_stage.
  std::unique_ptr<torch::optim::Optimizer> optimizer;  // of all parts
  ZeroOptimizer* zero = nullptr;
  std::function<absl::StatusOr<std::unique_ptr<ZeroOptimizer>>(bool init_sync)> make_zero;
  std::unique_ptr<ExponentialMovingAverage> average;  // null = none
  std::unique_ptr<GradScaler> scaler;
  std::shared_ptr<PowerSgd> power_sgd;                      // null = another hook
  std::unique_ptr<worker::PowerSgdOfAll> power_sgd_of_all;  // null with it
  std::unique_ptr<Checkpointer> checkpointer;               // null = none
  std::unique_ptr<worker::ShardReplicas> replicas;          // null = none
  std::unique_ptr<Metrics> metrics;
  worker::SaveClock save_clock;
  std::unique_ptr<worker::Healing> healing;  // null = none is under way
  TrainingProgress progress_before_healing;
  TrainingProgress progress;
  std::optional<TrainingProgress> saved;  // the last saved one, in this generation
  bool began_elsewhere = false;           // with a checkpoint in another folder than the own one
  // The generation in which this rank's state was computed; nullopt: this rank has no state that
  // training could go on from.
  std::optional<uint64_t> state_generation;
  // At the beginning of this generation: whether other ranks had a state, whether these had done
  // the last epoch's evaluation, and the highest fence of all ranks' checkpoints.
  bool others_have_state = false;
  bool evaluation_is_done = false;
  uint64_t newest_fence = 0;
  bool has_begun = false;                       // and shown its banner
  std::optional<worker::StepStart> step_start;  // nullopt: not needed
  // Not OK: a collective of this generation failed since the last Advance(). What the program does
  // until the next one doesn't count, unless the step was done before.
  absl::Status broken;

  // Reads ahead on threads that use data and options, and nothing that a new generation changes;
  // null: training is over.
  std::unique_ptr<ElasticLoader<std::vector<Pass>>> loader;
  SamplerState data_place;  // the committed place
  std::unique_ptr<worker::SamplerCheckpoint> sampler_checkpoint;
  int64_t constant_batch = 0;  // samples of a step; 0 = they depend on the number of workers
  std::unique_ptr<worker::BatchCheckpoint> batch_checkpoint;
  bool evaluation_is_due = false;  // after the last step that was done
  bool step_is_open = false;       // CloseStep() is still to come, with the program's states

  // The current step.
  StepShare step_share;
  std::vector<Pass> passes;  // the ones that remain, the next one last
  int64_t passes_left = 0;
  StepMetrics step_metrics;
  Instant step_began;
  absl::Duration step_time;  // of the last step that was done; 0 = unknown
  // The loss of all passes of the step [], on the model's device; undefined before the first step.
  torch::Tensor loss;
  worker::EpochLoss epoch_loss;
  int64_t not_finite_since = 0;  // the step from which on this rank's losses weren't; 0 = they are
  bool stepped = true;           // false: the optimizer left the last step out
  bool stopped = false;  // training ended early, because the launcher asked all ranks to stop

  // The current batch.
  Pass pass;
  std::optional<Autocast> autocast;
  bool has_stepped_part = false;       // StepOf was called, with several modules
  bool updated_early = false;          // an optimizer stepped before the end of the step
  bool stepped_with_function = false;  // by StepWith
  // Gradients are added up here until the last backward pass, which averages them.
  std::optional<ZeroOptimizer::NoSync> zero_no_sync;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_SESSION_FIELDS_H_
