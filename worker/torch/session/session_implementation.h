#ifndef DDPRUN_WORKER_TORCH_SESSION_SESSION_IMPLEMENTATION_H_
#define DDPRUN_WORKER_TORCH_SESSION_SESSION_IMPLEMENTATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "worker/torch/checkpoint/peer_state.h"
#include "worker/torch/session/session_fields.h"
#include "worker/torch/session/start_note.h"

namespace ddprun {

// What a Session does. Its methods answer a status, as everything below the Session's own does.
struct Session::Implementation : worker::SessionFields {
  // Marks().
  static constexpr int64_t kEvaluated = 1;
  static constexpr int64_t kFinished = 2;

  explicit Implementation(SessionOptions options_in) : SessionFields(std::move(options_in)) {}

  absl::Status Connect();
  // Once, before training (session_setup.cc).
  absl::Status Prepare();
  // Modules and optimizers (session_optimizers.cc).
  absl::Status Add(worker::SessionPart part);
  absl::Status BringTogether();  // under one roof, `model`
  absl::Status MakeOptimizers();
  // Null with a zero_stage: DealOut makes it.
  absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> MakeOptimizer(worker::SessionPart& part);
  absl::StatusOr<std::vector<AnyOptimizer::Group>> GroupsOf(worker::SessionPart& part,
                                                            std::vector<double>& decays) const;
  void PlanRates();
  absl::Status SetRates();  // those of the step that begins
  bool Several() const { return parts.size() > 1; }
  static bool IsAny(const worker::SessionPart& part) {
    return std::holds_alternative<AnyOptimizer>(part.kind);
  }
  // What this rank has to tell the others, and what they then know. Not OK: a peer is gone.
  worker::StartNote OwnNote();
  absl::StatusOr<std::vector<worker::StartNote>> AskWhoHasState();
  // Other ranks are in a later Session (session_order.cc): this rank ends this one without them.
  absl::Status GoAlone(uint64_t others_session);
  // INVALID_ARGUMENT: an earlier Session of this process has the folder of checkpoints.
  absl::Status TakeFolder();
  // The context is the next one's, as it is after the constructor.
  void EndSession();
  // Whether this rank is the one that prints, and writes files.
  bool Speaks() const { return context->is_main() && job == nullptr; }
  // INVALID_ARGUMENT, on every rank: a rank trains something else. notes: of all, or none.
  absl::Status CompareFacts(const std::vector<worker::StartNote>& notes);
  // With ZeRO: deals state out for the ranks of this generation, which the first one makes.
  absl::Status DealOut();
  // equal: all ranks have the same parameters already.
  absl::Status MakeDdp(bool equal);
  // How long training is with so many workers.
  absl::Status PlanSteps();
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
  // What a program in Python needs to go on (docs/CPP.md): options, optimizers, parameters' names.
  std::map<std::string, std::string> CheckpointNotes() const;
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
  bool Done() const { return loop_marks.is_finished || DoneAt(progress); }
  bool DoneAt(const TrainingProgress& there) const;
  bool IsEvaluated(const TrainingProgress& there) const;  // whether an evaluation follows it

  // In-process restarts (session_recovery.cc).
  bool SurvivesUnasked() const;
  // Whether such an error is followed by a generation in which this process can go on.
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
  // What is neither module nor optimizer, by its name in checkpoints; but PowerSgd's.
  std::map<std::string, CheckpointedState*> ExtrasOfAll() const;
  worker::ReplicatedState StateOfAll() const;
  // Of a StateVersion: kEvaluated, kFinished.
  int64_t Marks() const;
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
  // This rank's batches of a step, one for each backward pass. Threads: any.
  absl::StatusOr<std::vector<Pass>> LoadPasses(const StepShare& share) const;
  Pass LoadPass(const StepShare& share, uint64_t begin, uint64_t count) const;
  // After the last backward pass of a step.
  absl::Status EndStep();
  // Its samples are learned from.
  absl::Status CommitShare();
  // Of a step that is done: copies of shares, a checkpoint.
  absl::Status CloseStep();
  absl::Status Replicate();
  absl::Status SaveIfDue();
  // Reads the last step's loss: an error when it isn't finite.
  absl::Status CheckStep();
  absl::Status ReportStep();
  // Begins to save, with a score if there is one; without one, what is saved already isn't saved
  // again. The other waits until it is written.
  absl::Status Save(std::optional<double> score = std::nullopt);
  absl::Status SaveAndWait();
  absl::Status AwaitSaved();
  // Of --checkpoint_errors: OK in place of an error that training outlives.
  absl::Status Tolerate(absl::Status saved_or_not) const;
  // Whether this step's end is a time to save; a collective now and then, with
  // --checkpoint_minutes.
  absl::StatusOr<bool> SavingIsDue();
  // A batch (session_update.cc). of: null = of all modules.
  using LossFunction = std::function<torch::Tensor(const Batch& batch)>;
  void TakeBatch();
  void OpenPass(bool is_last);
  absl::Status CheckBackward(const torch::Tensor& of_batch, const worker::SessionPart* of) const;
  // Throws as LibTorch does.
  absl::Status Backward(const torch::Tensor& of_batch, worker::SessionPart* of = nullptr);
  void AddGradients(const torch::Tensor& of_batch, const worker::SessionPart* of);
  absl::Status CheckOptimizers() const;
  void ZeroGradients();
  absl::StatusOr<bool> StepPart(worker::SessionPart& part);
  absl::StatusOr<bool> StepWith(const LossFunction& function);
  torch::Tensor LossOfStep(const LossFunction& function, const std::vector<Pass>& all);
  absl::StatusOr<bool> EndBatch();
  absl::StatusOr<bool> CloseBatch();
  absl::StatusOr<bool> Update(worker::SessionPart& part);
  absl::StatusOr<bool> FinishBackward();  // buckets have changed; a collective
  absl::Status StepOptimizer();
  absl::Status KeepBeforeUpdate();

  // Evaluations (session_evaluation.cc).
  using Figures = std::vector<std::pair<std::string, double>>;
  absl::Status AddEvaluation(Evaluation evaluation);
  absl::StatusOr<std::string> Evaluate();  // a sentence for people; "" = there is none
  // With the averages in the parameters' place.
  absl::StatusOr<std::vector<Figures>> ComputeFigures();
  // Saves the model if no score was higher so far.
  absl::Status SaveIfBest(double score);
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_TORCH_SESSION_SESSION_IMPLEMENTATION_H_
