#ifndef DDPRUN_WORKER_TORCH_SESSION_SESSION_IMPLEMENTATION_H_
#define DDPRUN_WORKER_TORCH_SESSION_SESSION_IMPLEMENTATION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/session.h"
#include "worker/torch/checkpoint/peer_state.h"
#include "worker/torch/checkpoint/shard_replicas.h"
#include "worker/torch/session/call_order.h"
#include "worker/torch/session/checkpointed_parts.h"
#include "worker/torch/session/evaluations.h"
#include "worker/torch/session/healing_step.h"
#include "worker/torch/session/losses.h"
#include "worker/torch/session/own_states.h"
#include "worker/torch/session/report.h"
#include "worker/torch/session/sample_feed.h"
#include "worker/torch/session/saver.h"
#include "worker/torch/session/session_step.h"
#include "worker/torch/session/start_note.h"
#include "worker/torch/session/trained_model.h"
#include "worker/torch/session/training_course.h"

namespace ddprun {

// Conducts the parts of a Session: passes the program's calls to them, and carries out what they
// decide. Methods return a status, as everything below the Session's public methods.
//
//   CallOrder       which call of the program is allowed next
//   TrainingCourse  how far training has come, and what comes next: step, evaluation, end
//   TrainedModel    which gradients add up, and which optimizer steps with them at which rate
//   SampleFeed      which samples this rank learns from, and in which passes
//   CurrentStep     the step under way, with its StepStart, from which it is done again
//   Saver           when to save, and what an error of saving means
//   HealingStep     whose samples count while new workers get the state beside a step
//   StartMeeting    what the ranks know together at the beginning of a generation
//   TrainingFacts   whether all ranks train the same
//   Losses          an epoch's mean loss, and which rank's loss wasn't finite first
//   Evaluations     the figures, and which of them says which model is the best
//   Report          when the loss is read, and what is written of a step
//
// Invariant: a part knows neither the Session nor its callers, but at most parts that live longer.
struct Session::Implementation {
  using Place = worker::CallOrder::Place;

  explicit Implementation(SessionOptions options_in) : settings(std::move(options_in)) {}

  absl::Status Connect();
  // Once, before training (session_setup.cc).
  absl::Status Prepare(Dataset data);
  // Computes the length of training for the present number of workers.
  absl::Status PlanSteps();
  LearningRateSchedule Schedule() const;
  // Place in the schedule: the step number, at the present number of workers.
  int64_t SchedulePlace() const;
  absl::Status SetRates();  // for the step that begins
  // What all ranks of a generation do at its beginning.
  absl::Status StartTogether();
  // This rank's report to the others, and the exchange of all ranks' reports. Not OK: a peer is
  // gone.
  worker::StartNote OwnNote() const;
  absl::StatusOr<worker::StartMeeting> MeetOthers();
  // What a program in Python needs to go on (docs/CPP.md): options, optimizers, parameters' names.
  std::map<std::string, std::string> CheckpointNotes() const;
  // only: see CheckpointerOptions.
  std::unique_ptr<Checkpointer> MakeCheckpointer(const std::string& directory,
                                                 const std::string& only = "") const;

  // Other ranks are in a later Session (session_order.cc): this rank ends this one without them.
  absl::Status GoAlone(uint64_t others_session);
  // INVALID_ARGUMENT: an earlier Session of this process has the folder of checkpoints.
  absl::Status TakeFolder();
  // Leaves the context to the next Session, in the state after the constructor.
  void EndSession();
  // Whether this rank is the one that prints, and writes files.
  bool Speaks() const { return context->is_main() && job == nullptr; }

  // Resumes from a checkpoint, or elsewhere (session_resume.cc). An error if there is no checkpoint
  // and ranks have trained already, but can't put their state together.
  absl::Status Resume(bool others_have_state);
  absl::Status GoOnFrom(const TrainingProgress& found);
  absl::Status ResumeElsewhere();  // from what --resume_from names
  absl::Status TakeWeights(const std::string& path);

  // In-process restarts (session_recovery.cc).
  // Whether this process can go on in the next generation after this error.
  bool CanRecover(const absl::Status& status) const;
  // Gives the step up: until the next Advance() the program computes without the others.
  void Break(const absl::Status& why);
  // Drops what this rank has put off or half done.
  absl::Status LetGoOfStep();
  // Goes on in the next generation, after the last step that any rank has done.
  absl::Status Recover(const absl::Status& why);
  // Gets this rank the newest state of any rank. False: no rank has a state, so all resume from a
  // checkpoint.
  absl::StatusOr<bool> TakeStateOfOthers(const worker::StartMeeting& meeting);
  // Whether the state is sent beside a step; the same on all ranks. known: some ranks lack it.
  bool HealsBeside(const worker::KnownStates& known, bool evaluation_is_done) const;
  // TakeStateOfOthers() with ZeRO, where ranks keep copies of each other's shares.
  absl::StatusOr<bool> TakeShardsBack(const worker::StartMeeting& meeting);
  bool KeepsReplicas() const;
  // The states beside module and optimizer, by their names in checkpoints, without PowerSgd's.
  std::map<std::string, CheckpointedState*> ExtrasOfAll() const;
  worker::ReplicatedState StateOfAll() const;

  // The loop (session.cc).
  absl::StatusOr<const Batch*> Advance();
  // False: training is over.
  absl::StatusOr<bool> BeginStep();
  // BeginStep() in this generation, or in a later one if this one ends.
  absl::StatusOr<bool> BeginStepAnywhere();
  // Opens a step with its samples, for which it waits.
  absl::Status OpenStep();
  // Whether ranks stop here because the launcher asks them to.
  bool StopsHere();
  absl::Status EndEpoch();
  absl::Status End();
  void SeedGenerators(bool of_evaluation = false) const;  // torch's
  // After the last backward pass of a step.
  absl::Status EndStep();
  // After a step is done: sends copies of shares, saves a checkpoint if it is due.
  absl::Status Replicate();
  absl::Status SaveIfDue();
  // Waits until new workers have the state, if they get it beside this step.
  absl::Status FinishHealing();
  // Reads the last step's loss: an error when it isn't finite.
  absl::Status CheckStep();
  absl::Status ReportStep();
  absl::Status Evaluate();
  // Begins to save. Without a score, a state that is saved already isn't saved again.
  absl::Status Save(std::optional<double> score = std::nullopt);
  // Saves and waits until the checkpoint is written.
  absl::Status SaveAndWait();

  // A batch (session_update.cc). Params: of: null = all modules.
  using LossFunction = std::function<torch::Tensor(const Batch& batch)>;
  void TakeBatch();
  void OpenPass(bool is_last);
  // Throws as LibTorch does.
  absl::Status Backward(const torch::Tensor& loss, std::optional<size_t> of = std::nullopt);
  absl::StatusOr<bool> StepPart(size_t part);
  absl::StatusOr<bool> StepWith(const LossFunction& function);
  torch::Tensor LossOfStep(const LossFunction& function, const worker::SampleFeed::Passes& all);
  absl::StatusOr<bool> EndBatch();
  absl::StatusOr<bool> CloseBatch();
  absl::Status KeepBeforeUpdate();

  // Members die in reverse order: the context last.
  const SessionOptions settings;
  const TrainingOptions& options = settings.training;
  // If this Session goes alone: has the connections of `context`, until EndSession. Else null.
  std::unique_ptr<Context> job;
  std::shared_ptr<Context> context;  // the process' one, connected to the ranks that train
  uint64_t session_number = 1;       // of the process' Sessions, from 1
  worker::CallOrder calls;
  worker::OwnStates own;
  worker::TrainingCourse course{options};
  worker::TrainedModel trained{options};
  worker::TrainingFacts facts;
  worker::Evaluations evaluations;
  worker::Losses losses{session_number};
  worker::Report report{settings};
  std::unique_ptr<worker::SampleFeed> feed;  // null before Prepare
  std::unique_ptr<worker::BatchCheckpoint> batch_checkpoint;
  worker::Saver saver{options};
  std::unique_ptr<worker::ShardReplicas> replicas;  // null = none
  // Null: none is under way. Else only ranks that have the state learn.
  std::unique_ptr<worker::HealingStep> healing;
  worker::CurrentStep step;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_TORCH_SESSION_SESSION_IMPLEMENTATION_H_
