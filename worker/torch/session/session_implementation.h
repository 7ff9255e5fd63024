#ifndef DDPRUN_WORKER_TORCH_SESSION_SESSION_IMPLEMENTATION_H_
#define DDPRUN_WORKER_TORCH_SESSION_SESSION_IMPLEMENTATION_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
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
#include "worker/torch/checkpoint/peer_state.h"
#include "worker/torch/checkpoint/shard_replicas.h"
#include "worker/torch/session/batch_checkpoint.h"
#include "worker/torch/session/buckets_checkpoint.h"
#include "worker/torch/session/epoch_loss.h"
#include "worker/torch/session/journal.h"
#include "worker/torch/session/optimizer_steps.h"
#include "worker/torch/session/power_sgd_of_all.h"
#include "worker/torch/session/sampler_checkpoint.h"
#include "worker/torch/session/save_clock.h"
#include "worker/torch/session/session_step.h"
#include "worker/torch/session/start_note.h"

namespace ddprun {

// Its methods answer a status, as everything below the Session's own does.
// Members die in reverse order: the context last.
struct Session::Implementation {
  // Where the program is.
  enum class Place { kUnprepared, kBetweenBatches, kBatch, kBackwardDone, kEnded };

  explicit Implementation(SessionOptions options_in) : settings(std::move(options_in)) {}

  absl::Status Connect();
  // Once, before training (session_setup.cc).
  absl::Status Prepare(const OptimizerKind& kind, std::vector<ParameterGroup> groups);
  absl::StatusOr<std::vector<torch::optim::OptimizerParamGroup>> Groups(
      const OptimizerKind& kind, std::vector<ParameterGroup> groups);
  absl::Status MakeOptimizer(const OptimizerKind& kind, std::vector<ParameterGroup> groups);
  // What this rank has to tell the others, and what they then know. Not OK: a peer is gone.
  worker::StartNote OwnNote();
  absl::StatusOr<std::vector<worker::StartNote>> AskWhoHasState();
  // INVALID_ARGUMENT, on every rank: a rank trains something else. notes: of all, or none.
  absl::Status CompareFacts(const std::vector<worker::StartNote>& notes);
  // With ZeRO: deals state out for the ranks of this generation, which the first one makes.
  absl::Status DealOut();
  // equal: all ranks have the same parameters already.
  absl::Status MakeDdp(bool equal);
  // How long training is with so many workers.
  absl::Status PlanSteps();
  void PlanRates();
  absl::Status PrepareData();
  absl::Status MakeLoader();
  // Of one rank, at the number of workers with which training began.
  int64_t BatchPerRank() const { return options.batch_size * options.gradient_accumulation_steps; }
  // Goes on there in the data.
  absl::Status GoToPlace(const SamplerState& state);
  // What all ranks of a generation do at its beginning.
  absl::Status StartTogether();
  // From a checkpoint, or elsewhere. An error where there is none and ranks have trained already,
  // but can't put their state together any more.
  absl::Status Resume();
  // only: see CheckpointerOptions.
  std::unique_ptr<Checkpointer> MakeCheckpointer(const std::string& directory,
                                                 const std::string& only = "");
  absl::Status GoOnFrom(const TrainingProgress& found);
  absl::Status ResumeElsewhere();  // what --resume_from names
  absl::Status TakeWeights(const std::string& path);
  void ShowBanner() const;
  absl::Status BeginMetrics();
  LearningRateSchedule Schedule() const;

  int64_t GlobalBatch() const;  // samples of all ranks in one step
  // With constant_batch "step", from a checkpoint or another rank: what a step of this training
  // learns from.
  absl::Status TakeGlobalBatch(int64_t samples);
  int64_t StepsPerEpoch() const;
  // Place in the schedule: the step number, at the present number of workers.
  int64_t SchedulePlace() const;
  bool Done() const { return DoneAt(progress); }
  bool DoneAt(const TrainingProgress& there) const;

  using Pass = worker::Pass;
  // In-process restarts (session_recovery.cc).
  bool SurvivesUnasked() const;
  // Whether a generation follows such an error, in which this process can go on.
  bool CanRecover(const absl::Status& status) const;
  // The step comes to nothing: until the next one the program computes without the others.
  void Break(const absl::Status& why);
  // Keeps what a step changes before the optimizer does, and puts it back if that step isn't done.
  void KeepStepStart();
  absl::Status ReturnToStepStart();
  void LetGoOfStep();
  // Goes on in the next generation, after the last step that any rank has done.
  absl::Status Recover(const absl::Status& why);
  // False: no rank has any state, so that all resume from a checkpoint.
  absl::StatusOr<bool> TakeStateOfOthers(const std::vector<worker::StartNote>& notes);
  void SayWhereItGoesOn() const;
  // The same with ZeRO, whose ranks keep copies of each other's state, and how they do.
  absl::StatusOr<bool> TakeShardsBack(const std::vector<worker::StartNote>& notes);
  bool KeepsReplicas() const;

  // New workers get the state beside a step (session_healing.cc). Between Begin and End
  // `healing` isn't null, and only those who have the state learn.
  std::map<std::string, CheckpointedState*> ExtrasOfAll() const;  // but PowerSgd's
  worker::ReplicatedState StateOfAll() const;
  // The same on all ranks. known: some lack the newest state.
  bool HealsBeside(const worker::KnownStates& known) const;
  absl::Status BeginHealing(const worker::KnownStates& known);
  // The weights of this step's passes, which were dealt to those who learn.
  void WeighForLearners();
  // A collective: before the optimizer's step, or before anything else that takes the state.
  absl::Status FinishHealing();
  absl::Status EndHealing();
  // The step broke; or none was begun.
  absl::Status LeaveHealing();

  // The loop (session.cc).
  absl::StatusOr<const Batch*> Advance();
  // False: training is over.
  absl::StatusOr<bool> BeginStep();
  // The same; goes on in the next generation where this one ends.
  absl::StatusOr<bool> BeginStepAnywhere();
  absl::Status EndEpoch();
  absl::Status End();
  void SeedGenerators(bool of_evaluation = false) const;  // torch's
  // Waits for the samples of the next step.
  absl::Status TakeShare();
  void TakeBatch();
  // This rank's batches of a step, one for each backward pass. Threads: any.
  absl::StatusOr<std::vector<Pass>> LoadPasses(const StepShare& share) const;
  Pass LoadPass(const StepShare& share, uint64_t begin, uint64_t count) const;
  absl::Status CheckBackward(const torch::Tensor& of_batch) const;
  // Throws as LibTorch does.
  void AddGradients(const torch::Tensor& of_batch);
  absl::StatusOr<bool> EndBatch();
  // After the last backward pass of a step.
  absl::Status EndStep();
  // Its samples are learned from.
  absl::Status CommitShare();
  absl::Status StepOptimizer();
  // The norm before clipping; unset: not measured, or beyond fp16's range.
  absl::StatusOr<std::optional<double>> Clip();
  // Reads the last step's loss: an error when it isn't finite.
  absl::Status CheckStep();
  absl::Status ReportStep();
  // Begins to save, again only with a score; the other waits until it is written.
  absl::Status Save(std::optional<double> score = std::nullopt);
  absl::Status SaveAndWait();
  // Whether a save is due; a collective now and then, with --checkpoint_minutes.
  absl::StatusOr<bool> SavingIsDue();
  absl::StatusOr<std::string> Evaluate();  // for people; "" = there is no evaluation
  // The evaluation's, with the averages in the parameters' place.
  absl::StatusOr<double> Figure();
  // Saves the model if its figure is the best so far.
  absl::Status SaveIfBest(double figure);

  const SessionOptions settings;
  const TrainingOptions& options = settings.training;
  std::unique_ptr<Context> context;
  worker::Journal journal;
  Place place = Place::kUnprepared;

  std::shared_ptr<torch::nn::Module> model;
  Dataset data;
  std::vector<std::string> facts;         // that all ranks have alike (session_facts.h)
  std::vector<std::string> sample_facts;  // that they should
  Evaluation evaluation;                  // figure null = none
  MixedPrecision precision = MixedPrecision::kNo;
  LearningRateSchedule schedule;
  std::vector<double> rate_factors;  // of the schedule's peak, by group of the optimizer
  std::optional<GroupLearningRates> rates;
  // Made once the model is where it belongs. zero: with a zero_stage, the same as optimizer.
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  ZeroOptimizer* zero = nullptr;
  worker::OptimizerSteps optimizer_steps;
  std::function<absl::StatusOr<std::unique_ptr<ZeroOptimizer>>(bool init_sync)> make_zero;
  std::unique_ptr<ExponentialMovingAverage> average;  // null = none
  std::unique_ptr<GradScaler> scaler;
  std::shared_ptr<PowerSgd> power_sgd;                      // null = another hook
  std::unique_ptr<worker::PowerSgdOfAll> power_sgd_of_all;  // null with it
  std::unique_ptr<DistributedDataParallel> ddp;             // null with zero_stage 2
  std::unique_ptr<worker::BucketsCheckpoint> buckets_checkpoint;
  std::unique_ptr<Checkpointer> checkpointer;       // null = none
  std::unique_ptr<worker::ShardReplicas> replicas;  // null = none
  std::unique_ptr<Metrics> metrics;
  worker::SaveClock save_clock;
  std::unique_ptr<worker::Healing> healing;  // null = none is under way
  TrainingProgress progress_before_healing;
  TrainingProgress progress;
  std::optional<TrainingProgress> saved;  // the last that was, in this generation
  // In which generation this rank's state came about; none: training can't go on from it.
  std::optional<uint64_t> state_generation;
  bool others_have_state = false;               // or others have, when this generation began
  bool evaluation_is_done = false;              // then, of the last epoch, as far as these know
  uint64_t newest_fence = 0;                    // then, of all ranks' checkpoints
  bool has_begun = false;                       // and shown its banner
  std::optional<worker::StepStart> step_start;  // none: it isn't wanted
  // Not OK: a collective of this generation failed since the loop was last asked for a batch; what
  // is done until it is asked again doesn't count, unless the step was done before.
  absl::Status broken;

  // Its threads use nothing that a new generation changes; null: training is over.
  std::unique_ptr<ElasticLoader<std::vector<Pass>>> loader;
  SamplerState data_place;  // what is committed
  std::unique_ptr<worker::SamplerCheckpoint> sampler_checkpoint;
  int64_t constant_batch = 0;  // samples of a step; 0: it follows the number of workers
  std::unique_ptr<worker::BatchCheckpoint> batch_checkpoint;
  bool epoch_is_over = false;  // its last step was the last one that was done

  // Of the current step.
  StepShare step_share;
  std::vector<Pass> passes;  // those that are left, the next one last
  int64_t passes_left = 0;
  StepMetrics step_metrics;
  Instant step_began;
  absl::Duration step_time;  // of the last one that was done; 0 = unknown
  // Of all its passes [], on the model's device; undefined before the first step.
  torch::Tensor loss;
  worker::EpochLoss epoch_loss;
  bool stepped = true;   // the last step; false: it was left out
  bool stopped = false;  // after it, because all ranks were told to

  // Of the current batch.
  Pass pass;
  bool forward_called = false;
  std::optional<Autocast> autocast;
  // Gradients are added up here until the last backward pass, which averages them.
  std::optional<DistributedDataParallel::NoSync> no_sync;
  std::optional<ZeroOptimizer::NoSync> zero_no_sync;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_TORCH_SESSION_SESSION_IMPLEMENTATION_H_
