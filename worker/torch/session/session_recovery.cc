// How a session goes on, in this process, in the next generation.
#include <torch/utils.h>

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "ddprun/parameters.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/checkpoint/peer_state.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/errors/failure_notice.h"
#include "worker/torch/session/session_implementation.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"

namespace ddprun {

bool Session::Implementation::CanRecover(const absl::Status& status) const {
  return context->CanRejoin() && absl::StartsWith(status.message(), worker::kPeerErrorPrefix);
}

void Session::Implementation::Break(const absl::Status& why) {
  broken = why;
  context->implementation().alone = true;
  if (zero == nullptr) return;
  std::optional<worker::ZeroGatherer>& gatherer = zero->implementation().gatherer;
  if (gatherer.has_value()) gatherer->Abandon();
}

void Session::Implementation::KeepStepStart() {
  if (!context->CanRejoin() || zero != nullptr) return;  // ZeRO goes back to what it has copies of
  worker::StepStart start;
  start.step = progress.step;
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& buffer : Buffers(*model)) start.buffers.push_back(buffer.clone());
  if (power_sgd != nullptr) start.power_sgd = worker::KeepPowerSgd(*power_sgd);
  start.own = own.Keep();
  start.is_finished = loop_marks.is_finished;
  step_start = std::move(start);
}

absl::Status Session::Implementation::ReturnToStepStart() {
  if (!step_start.has_value() || step_start->step != progress.step) return absl::OkStatus();
  const torch::NoGradGuard no_grad;
  // Otherwise parameters change only at the step's end, which waits for no peer.
  if (step_start->before_update.has_value()) {
    DDPRUN_RETURN_IF_ERROR(worker::RestoreLasting(*step_start->before_update, StateOfAll()));
    scaler->Restore(scaler->scale(), scaler->growth_tracker());
  }
  DDPRUN_RETURN_IF_ERROR(own.PutBack(step_start->own));
  loop_marks.is_finished = step_start->is_finished;
  std::vector<torch::Tensor> buffers = Buffers(*model);
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(step_start->buffers[i]);
  return power_sgd != nullptr ? power_sgd->RestoreState(step_start->power_sgd) : absl::OkStatus();
}

// Drops what this rank has put off or half done: a new rank of the next generation knows nothing of
// it, so a survivor that finished it would call collectives alone. In this order, because objects
// that are made from the context must die before its group.
void Session::Implementation::LetGoOfStep() {
  step_is_open = has_stepped_part = updated_early = stepped_with_function = false;
  not_finite_since = 0;
  autocast.reset();
  for (worker::SessionPart& part : parts) {
    part.no_sync.reset();
    part.has_gradients = part.backward_done = false;
  }
  zero_no_sync.reset();
  passes.clear();
  pass = Pass();
  loss = torch::Tensor();
  passes_left = 0;
  place = Place::kBetweenBatches;
  model->train();  // unless an evaluation broke
  metrics.reset();
  for (worker::SessionPart& part : parts) part.ddp.reset();
  if (zero != nullptr) zero->LetGo();
  // Gradients may be views into the buckets of the objects that were just destroyed.
  for (torch::Tensor& parameter : Parameters(*model)) parameter.mutable_grad().reset();
}

absl::Status Session::Implementation::Recover(const absl::Status& why) {
  const Instant began = MonotonicNow();
  Log(LogLevel::kInfo, absl::StrCat("rank ", context->rank(), " stops in step ", progress.step + 1,
                                    ": ", why.message()));
  LetGoOfStep();
  DDPRUN_RETURN_IF_ERROR(LeaveHealing());
  DDPRUN_RETURN_IF_ERROR(ReturnToStepStart());
  while (true) {
    // A rank that has left with status 0 ends no generation: Rejoin() would wait for nothing.
    if (std::optional<absl::Status> left = worker::DepartureBehind(why)) return *std::move(left);
    absl::Status joined = context->Rejoin();
    if (joined.ok()) joined = PlanSteps();  // with another number of workers
    if (joined.ok()) joined = StartTogether();
    if (joined.ok()) break;
    if (!CanRecover(joined)) return joined;
    LetGoOfStep();  // the next generation broke as well
    DDPRUN_RETURN_IF_ERROR(LeaveHealing());
  }
  if (Speaks()) {
    worker::Print(absl::StrFormat(
        "generation %d: goes on after step %d on %s, this one without a restart (%d ms)",
        context->generation(), progress.step, CountText(context->world_size(), "worker"),
        absl::ToInt64Milliseconds(MonotonicNow() - began)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Session::Implementation::TakeStateOfOthers(
    const std::vector<worker::StartNote>& notes) {
  if (!context->CanRejoin()) return false;
  if (zero != nullptr) return TakeShardsBack(notes);
  std::vector<worker::StateOffer> offers;
  offers.reserve(notes.size());
  for (const worker::StartNote& note : notes) offers.push_back(note.offer);
  const worker::KnownStates known = worker::CompareOffers(offers);
  if (!known.newest.has_value()) return false;
  if (!known.AllHaveIt()) {
    if (HealsBeside(known)) {
      DDPRUN_RETURN_IF_ERROR(BeginHealing(known));
    } else {
      DDPRUN_RETURN_IF_ERROR(worker::TakeNewestState(*context, StateOfAll(), known));
      // From here on this rank has the state, even if others are killed before all train.
      state_generation = known.newest->generation;
    }
    progress = known.newest->progress;
  }
  const bool is_new = !known.versions[context->rank()].has_value();
  if (is_new && context->is_main()) SayWhereItGoesOn();
  return true;
}

void Session::Implementation::SayWhereItGoesOn() const {
  worker::Print(
      absl::StrFormat("goes on at step %d, epoch %d, with the state of a worker that lives",
                      progress.step, progress.epoch));
}

bool Session::Implementation::KeepsReplicas() const {
  return zero != nullptr && context->CanRejoin() && options.in_process_restart.has_value() &&
         options.replicas > 0;
}

absl::StatusOr<bool> Session::Implementation::TakeShardsBack(
    const std::vector<worker::StartNote>& notes) {
  if (!KeepsReplicas()) return false;
  if (replicas == nullptr) {
    replicas = std::make_unique<worker::ShardReplicas>(
        *context,
        worker::ShardedTraining{
            .module = *model, .zero = *zero, .extras = ExtrasOfAll(), .average = average.get()},
        static_cast<uint32_t>(options.replicas));
  }
  std::vector<uint32_t> hosts;
  std::vector<std::vector<worker::RecordKey>> records;
  for (const worker::StartNote& note : notes) {
    hosts.push_back(note.host);
    records.push_back(note.records);
  }
  replicas->ConnectBeside(hosts);
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<TrainingProgress> newest,
                          replicas->TakeBack(records));
  if (!newest.has_value()) return false;
  progress = *newest;
  if (!state_generation.has_value() && context->is_main()) SayWhereItGoesOn();
  state_generation = context->generation();
  return true;
}

}  // namespace ddprun
