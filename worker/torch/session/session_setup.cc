// The setup of a session: once before it trains, and at the beginning of each generation.
#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/context/process_context.h"
#include "worker/torch/errors/failure_notice.h"
#include "worker/torch/session/session_implementation.h"

namespace ddprun {
namespace {

// A schedule falls to this share of its peak.
constexpr double kLeastRateShare = 0.1;

// Whether surviving costs a step next to nothing. With ZeRO a lost share then comes back from a
// checkpoint, because copies in other workers' memory must be asked for.
bool SurvivesUnasked(const TrainingOptions& options) {
  if (options.zero_stage == "0") return true;
  return !options.CheckpointDirectory().empty() && options.comm_hook != "power_sgd";
}

}  // namespace

absl::Status Session::Implementation::Connect() {
  if (!options.log_level.empty()) SetLogLevel(options.log_level);
  at::set_num_threads(static_cast<int>(options.threads));
  const std::optional<bool>& survive = options.in_process_restart;
  DDPRUN_ASSIGN_OR_RETURN(
      context, worker::TakeProcessContext({.backend = options.backend,
                                           .in_process_restart = survive.value_or(false),
                                           .in_process_restart_on_cpu =
                                               !survive.has_value() && SurvivesUnasked(options)}));
  session_number = ++context->implementation().sessions;
  losses = worker::Losses(session_number);
  if (session_number > 1) worker::WithdrawDeparture();
  torch::manual_seed(static_cast<uint64_t>(options.seed));
  return TakeFolder();
}

absl::Status Session::Implementation::Prepare(Dataset data) {
  DDPRUN_RETURN_IF_ERROR(trained.Assemble());
  // The weights are the same everywhere; what a model draws while it trains differs by rank.
  torch::manual_seed(static_cast<uint64_t>(options.seed) + context->rank());
  feed = std::make_unique<worker::SampleFeed>(options, std::move(data), context->rank(),
                                              context->world_size());
  if (context->is_main()) {
    worker::Print(absl::StrFormat("%s: %s over %s, %d %s to learn from, %d a step", settings.name,
                                  CountText(context->world_size(), "worker"), context->backend(),
                                  feed->data().size, feed->data().samples_name,
                                  feed->GlobalBatch()));
  }
  DDPRUN_RETURN_IF_ERROR(feed->Begin());
  batch_checkpoint = std::make_unique<worker::BatchCheckpoint>(*feed, course.marks(),
                                                               [this] { return PlanSteps(); });
  DDPRUN_RETURN_IF_ERROR(PlanSteps());
  facts = worker::TrainingFacts(options, feed->data(), trained);
  DDPRUN_RETURN_IF_ERROR(trained.Begin(context->device()));
  calls.Prepare(trained.parts().size());
  absl::Status started = StartTogether();
  if (!started.ok() && CanRecover(started)) started = Recover(started);
  return started;
}

LearningRateSchedule Session::Implementation::Schedule() const {
  const double peak = ScaledLearningRate(
      options.learning_rate, *ParseLearningRateScaling(options.lr_scaling),
      static_cast<uint64_t>(options.batch_size), static_cast<uint64_t>(feed->GlobalBatch()));
  return {.kind = *ParseScheduleKind(options.lr_schedule),
          .peak = peak,
          .warmup_steps = options.warmup_steps,
          .total_steps = options.steps > 0 ? options.steps : options.epochs * feed->StepsPerEpoch(),
          .least = peak * kLeastRateShare};
}

absl::Status Session::Implementation::PlanSteps() { return trained.Plan(Schedule()); }

int64_t Session::Implementation::SchedulePlace() const {
  const TrainingProgress& progress = course.progress();
  if (options.steps > 0) return progress.step;
  // Not the number of steps: after the number of workers changed, a step has another size.
  return progress.epoch * feed->StepsPerEpoch() + progress.epoch_samples / feed->GlobalBatch();
}

absl::Status Session::Implementation::SetRates() {
  DDPRUN_ASSIGN_OR_RETURN(step.metrics.learning_rate, trained.SetRates(SchedulePlace()));
  return absl::OkStatus();
}

absl::Status Session::Implementation::StartTogether() {
  // Batches that were read ahead were dealt for the ranks of the generation before.
  DDPRUN_RETURN_IF_ERROR(feed->Reform(context->rank(), context->world_size()));
  DDPRUN_RETURN_IF_ERROR(PlanSteps());
  if (saver.checkpointer() != nullptr) saver.checkpointer()->LeaveGeneration();
  DDPRUN_ASSIGN_OR_RETURN(const worker::StartMeeting meeting, MeetOthers());
  DDPRUN_RETURN_IF_ERROR(facts.Compare(*context, meeting));
  // A new rank 0's initial state must not be sent to the others.
  DDPRUN_RETURN_IF_ERROR(trained.Divide(*context, /*init_sync=*/!meeting.others_have_state));
  if (saver.checkpointer() == nullptr && !options.CheckpointDirectory().empty()) {
    saver.SaveWith(MakeCheckpointer(options.CheckpointDirectory()));
  }
  if (Checkpointer* checkpointer = saver.checkpointer()) {
    // Before all else, so that a rank that soon has the state alone can save it as the newest.
    if (meeting.others_have_state) checkpointer->GoOnAfter(meeting.newest_fence);
    if (job == nullptr) DDPRUN_RETURN_IF_ERROR(checkpointer->Claim());
  }
  DDPRUN_ASSIGN_OR_RETURN(const bool others_know, TakeStateOfOthers(meeting));
  DDPRUN_RETURN_IF_ERROR(trained.Connect(*context, /*equal=*/others_know));
  const bool has_it_alone =
      job != nullptr && trained.zero() == nullptr && course.version().has_value();
  if (!others_know && !has_it_alone) DDPRUN_RETURN_IF_ERROR(Resume(meeting.others_have_state));
  if (job != nullptr) saver.SaveWith(nullptr);  // the other ranks have saved this Session
  if (KeepsReplicas()) DDPRUN_RETURN_IF_ERROR(replicas->Begin(course.progress()));
  DDPRUN_RETURN_IF_ERROR(
      report.Begin(*context, job != nullptr, trained, *feed, course.step(),
                   course.step() + trained.schedule().total_steps - SchedulePlace()));
  saver.BeginGeneration();
  if (!others_know) course.HasState(context->generation());
  course.BeginGeneration(meeting.evaluation_is_done);
  return absl::OkStatus();
}

worker::StartNote Session::Implementation::OwnNote() const {
  worker::StartNote note = {.session = session_number,
                            .host = context->implementation().plan.host,
                            .offer = course.Offer()};
  facts.AddTo(note);
  if (saver.checkpointer() != nullptr) note.fence = saver.checkpointer()->fence();
  if (replicas != nullptr) note.records = replicas->Records();
  if (!note.offer.version.has_value()) return note;
  note.knows = course.evaluation_is_due() ? worker::StartNote::Knows::kTrainingBeforeItsEvaluation
                                          : worker::StartNote::Knows::kTraining;
  if (options.zero_stage == "0") {
    note.offer.bytes = worker::StateBytes(StateOfAll());
  } else {
    note.offer.version.reset();  // no rank has all of it
  }
  return note;
}

absl::StatusOr<worker::StartMeeting> Session::Implementation::MeetOthers() {
  if (!context->CanRejoin()) return worker::StartMeeting();
  while (true) {
    DDPRUN_ASSIGN_OR_RETURN(std::vector<worker::StartNote> notes,
                            worker::ExchangeStartNotes(*context, OwnNote()));
    const auto [first, last] = std::minmax_element(
        notes.begin(), notes.end(),
        [](const auto& one, const auto& other) { return one.session < other.session; });
    if (last->session > session_number) {
      DDPRUN_RETURN_IF_ERROR(GoAlone(last->session));
      return worker::StartMeeting();
    }
    if (first->session == last->session) return worker::StartMeeting(std::move(notes));
  }
}

std::map<std::string, std::string> Session::Implementation::CheckpointNotes() const {
  std::map<std::string, std::string> notes = {
      {"options", absl::StrJoin(worker::OptionFacts(options), "\n")}};
  for (const worker::SessionPart& part : trained.parts()) {
    const std::string prefix = part.name.empty() ? "" : absl::StrCat(part.name, ".");
    notes[prefix + "optimizer"] = worker::OptimizerFacts(part.kind, {}).front();
    notes[prefix + "optimizer_parameters"] =
        absl::StrJoin(worker::ParameterNames(*part.module, *part.optimizer), "\n");
  }
  return notes;
}

std::unique_ptr<Checkpointer> Session::Implementation::MakeCheckpointer(
    const std::string& directory, const std::string& only) const {
  auto result = std::make_unique<Checkpointer>(
      *context, trained.module(), *trained.optimizer(),
      CheckpointerOptions{.directory = directory,
                          .keep = static_cast<uint32_t>(options.keep_checkpoints),
                          .sharded = trained.zero() != nullptr,
                          .tell_of_none = options.resume_from.empty(),
                          .only = only,
                          .notes = CheckpointNotes()});
  for (const auto& [name, state] : ExtrasOfAll()) result->Add(name, *state);
  if (trained.power_sgd() != nullptr) result->Add("power_sgd", *trained.power_sgd());
  if (trained.average() != nullptr) result->Add(*trained.average());
  return result;
}

}  // namespace ddprun
