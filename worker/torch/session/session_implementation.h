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

// The methods of a Session. They return a status, as everything below the Session's public methods.
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
  absl::Status BringTogether();  // makes `model` of all parts
  absl::Status MakeOptimizers();
  // Null with a zero_stage: DealOut makes it.
  absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> MakeOptimizer(worker::SessionPart& part);
  absl::StatusOr<std::vector<AnyOptimizer::Group>> GroupsOf(worker::SessionPart& part,
                                                            std::vector<double>& decays) const;
  void PlanRates();
  absl::Status SetRates();  // for the step that begins
  bool Several() const { return parts.size() > 1; }
  static bool IsAny(const worker::SessionPart& part) {
    return std::holds_alternative<AnyOptimizer>(part.kind);
  }
  // This rank's report to the others, and the exchange of all ranks' reports. Not OK: a peer is
  // gone.
  worker::StartNote OwnNote();
  absl::StatusOr<std::vector<worker::StartNote>> AskWhoHasState();
  // Other ranks are in a later Session (session_order.cc): this rank ends this one without them.
  absl::Status GoAlone(uint64_t others_session);
  // INVALID_ARGUMENT: an earlier Session of this process has the folder of checkpoints.
  absl::Status TakeFolder();
  // Leaves the context to the next Session, in the state after the constructor.
  void EndSession();
  // Whether this rank is the one that prints, and writes files.
  bool Speaks() const { return context->is_main() && job == nullptr; }
  // INVALID_ARGUMENT, on every rank: a rank trains something else. notes: all ranks', or empty.
  absl::Status CompareFacts(const std::vector<worker::StartNote>& notes);
  // With ZeRO: divides the state among the ranks of this generation; the first generation makes it.
  absl::Status DealOut();
  // equal: all ranks have the same parameters already.
  absl::Status MakeDdp(bool equal);
  // Computes the length of training for the present number of workers.
  absl::Status PlanSteps();
  absl::Status PrepareData();
  absl::Status MakeLoader();
  // Samples of one rank in one step, at the number of workers with which training began.
  int64_t BatchPerRank() const { return options.batch_size * options.gradient_accumulation_steps; }
  // Goes on at this place in the data.
  absl::Status GoToPlace(const SamplerState& state);
  // What all ranks of a generation do at its beginning.
  absl::Status StartTogether();
  // Resumes from a checkpoint, or elsewhere. An error if there is no checkpoint and ranks have
  // trained already, but can't put their state together.
  absl::Status Resume();
  // only: see CheckpointerOptions.
  // What a program in Python needs to go on (docs/CPP.md): options, optimizers, parameters' names.
  std::map<std::string, std::string> CheckpointNotes() const;
  std::unique_ptr<Checkpointer> MakeCheckpointer(const std::string& directory,
                                                 const std::string& only = "");
  absl::Status GoOnFrom(const TrainingProgress& found);
  absl::Status ResumeElsewhere();  // from what --resume_from names
  absl::Status TakeWeights(const std::string& path);
  void ShowBanner() const;
  absl::Status BeginMetrics();
  LearningRateSchedule Schedule() const;

  int64_t GlobalBatch() const;  // samples of all ranks in one step
  // With constant_batch "step": takes the number of samples of a step from a checkpoint or another
  // rank.
  absl::Status TakeGlobalBatch(int64_t samples);
  int64_t StepsPerEpoch() const;
  // Place in the schedule: the step number, at the present number of workers.
  int64_t SchedulePlace() const;
  bool Done() const { return loop_marks.is_finished || DoneAt(progress); }
  bool DoneAt(const TrainingProgress& there) const;
  bool IsEvaluated(const TrainingProgress& there) const;  // whether an evaluation follows

  // In-process restarts (session_recovery.cc).
  bool SurvivesUnasked() const;
  // Whether this process can go on in the next generation after this error.
  bool CanRecover(const absl::Status& status) const;
  // Gives the step up: until the next Advance() the program computes without the others.
  void Break(const absl::Status& why);
  // Copies what a step changes before its optimizer steps, and restores it if the step isn't done.
  void KeepStepStart();
  absl::Status ReturnToStepStart();
  void LetGoOfStep();
  // Goes on in the next generation, after the last step that any rank has done.
  absl::Status Recover(const absl::Status& why);
  // Gets this rank the newest state of any rank. False: no rank has a state, so all resume from a
  // checkpoint.
  absl::StatusOr<bool> TakeStateOfOthers(const std::vector<worker::StartNote>& notes);
  void SayWhereItGoesOn() const;
  // TakeStateOfOthers() with ZeRO, where ranks keep copies of each other's shares.
  absl::StatusOr<bool> TakeShardsBack(const std::vector<worker::StartNote>& notes);
  bool KeepsReplicas() const;

  // New workers get the state beside a step (session_healing.cc). Between BeginHealing and
  // EndHealing `healing` isn't null, and only ranks that have the state learn.
  // The states beside module and optimizer, by their names in checkpoints, without PowerSgd's.
  std::map<std::string, CheckpointedState*> ExtrasOfAll() const;
  worker::ReplicatedState StateOfAll() const;
  // The marks of a StateVersion: kEvaluated, kFinished.
  int64_t Marks() const;
  // Whether the state is sent beside a step; the same on all ranks. known: some ranks lack it.
  bool HealsBeside(const worker::KnownStates& known) const;
  absl::Status BeginHealing(const worker::KnownStates& known);
  // Sets the weights of this step's passes for the number of ranks that learn.
  void WeighForLearners();
  // Waits until all ranks have the state; a collective. Before the optimizer's step, and before
  // anything else that reads the state.
  absl::Status FinishHealing();
  absl::Status EndHealing();
  // Gives the healing up if the step broke or none was begun.
  absl::Status LeaveHealing();

  // The loop (session.cc).
  absl::StatusOr<const Batch*> Advance();
  // False: training is over.
  absl::StatusOr<bool> BeginStep();
  // BeginStep() in this generation, or in a later one if this one ends.
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
  // Counts the step's samples as learned from.
  absl::Status CommitShare();
  // After a step is done: sends copies of shares, saves a checkpoint if it is due.
  absl::Status CloseStep();
  absl::Status Replicate();
  absl::Status SaveIfDue();
  // Reads the last step's loss: an error when it isn't finite.
  absl::Status CheckStep();
  // On CPUs: notes where the losses stop being finite, for the error of a later step.
  void NoteLoss();
  absl::Status ReportStep();
  // Begins to save. Without a score, a state that is saved already isn't saved again.
  absl::Status Save(std::optional<double> score = std::nullopt);
  // Saves and waits until the checkpoint is written.
  absl::Status SaveAndWait();
  absl::Status AwaitSaved();
  // Returns OK in place of an error if --checkpoint_errors says that training goes on.
  absl::Status Tolerate(absl::Status saved_or_not) const;
  // Whether a checkpoint is due at this step's end; at some steps a collective, with
  // --checkpoint_minutes.
  absl::StatusOr<bool> SavingIsDue();
  // A batch (session_update.cc). Params: of: null = all modules.
  using LossFunction = std::function<torch::Tensor(const Batch& batch)>;
  void TakeBatch();
  void OpenPass(bool is_last);
  absl::Status CheckBackward(const torch::Tensor& of_batch, const worker::SessionPart* of) const;
  // Throws as LibTorch does.
  absl::Status Backward(const torch::Tensor& of_batch, worker::SessionPart* of = nullptr);
  // Not OK: the modules have no part in the loss.
  absl::Status AddGradients(const torch::Tensor& of_batch, const worker::SessionPart* of);
  absl::Status CheckOptimizers() const;
  void ZeroGradients();
  absl::StatusOr<bool> StepPart(worker::SessionPart& part);
  absl::StatusOr<bool> StepWith(const LossFunction& function);
  torch::Tensor LossOfStep(const LossFunction& function, const std::vector<Pass>& all);
  absl::StatusOr<bool> EndBatch();
  absl::StatusOr<bool> CloseBatch();
  absl::StatusOr<bool> Update(worker::SessionPart& part);
  absl::StatusOr<bool> FinishBackward();  // a collective; returns whether buckets changed
  absl::Status StepOptimizer();
  absl::Status KeepBeforeUpdate();

  // Evaluations (session_evaluation.cc).
  using Figures = std::vector<std::pair<std::string, double>>;
  absl::Status AddEvaluation(Evaluation evaluation);
  absl::StatusOr<std::string> Evaluate();  // returns a sentence for people; "" = none
  // Marks this step as evaluated, if an evaluation may change the program's own states.
  void NoteEvaluated();
  // With the averages in the parameters' place, if there are averages.
  absl::StatusOr<std::vector<Figures>> ComputeFigures();
  // Saves the model if no score was higher so far.
  absl::Status SaveIfBest(double score);
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_TORCH_SESSION_SESSION_IMPLEMENTATION_H_
