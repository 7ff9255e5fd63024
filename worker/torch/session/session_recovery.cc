// How a session goes on, in this process, in the next generation.
#include <torch/utils.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "worker/torch/checkpoint/peer_state.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/ddp/distributed_data_parallel_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/errors/failure_notice.h"
#include "worker/torch/session/session_implementation.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"

namespace ddprun {
namespace {

void SayWhereItGoesOn(const TrainingProgress& progress) {
  worker::Print(
      absl::StrFormat("goes on at step %d, epoch %d, with the state of a worker that lives",
                      progress.step, progress.epoch));
}

}  // namespace

bool Session::Implementation::CanRecover(const absl::Status& status) const {
  return context->CanRejoin() && absl::StartsWith(status.message(), worker::kPeerErrorPrefix);
}

void Session::Implementation::Break(const absl::Status& why) {
  step.broken = why;
  context->implementation().alone = true;
  if (trained.zero() == nullptr) return;
  std::optional<worker::ZeroGatherer>& gatherer = trained.zero()->implementation().gatherer;
  if (gatherer.has_value()) gatherer->Abandon();
}

std::map<std::string, CheckpointedState*> Session::Implementation::ExtrasOfAll() const {
  std::map<std::string, CheckpointedState*> extras = trained.States();
  extras["data"] = feed.get();
  extras["batch"] = batch_checkpoint.get();
  return own.Beside(extras);
}

worker::ReplicatedState Session::Implementation::StateOfAll() const {
  std::map<std::string, CheckpointedState*> extras = ExtrasOfAll();
  if (trained.power_sgd() != nullptr) extras["power_sgd"] = trained.power_sgd_of_all();
  return {.module = *trained.module(),
          .optimizer = *trained.optimizer(),
          .extras = extras,
          .average = trained.average()};
}

// Objects that are made from the context die here, before its group does.
absl::Status Session::Implementation::LetGoOfStep() {
  step = {};
  losses.GoBack();
  calls.CloseBatch();
  report.LetGo();
  trained.LetGo();
  if (healing == nullptr) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(healing->Abandon());
  healing.reset();
  return absl::OkStatus();
}

absl::Status Session::Implementation::Recover(const absl::Status& why) {
  const Instant began = MonotonicNow();
  Log(LogLevel::kInfo, absl::StrCat("rank ", context->rank(), " stops in step ", course.step() + 1,
                                    ": ", why.message()));
  const std::unique_ptr<worker::StepStart> start = std::move(step.start);
  DDPRUN_RETURN_IF_ERROR(LetGoOfStep());
  if (start != nullptr) DDPRUN_RETURN_IF_ERROR(start->PutBack(StateOfAll()));
  while (true) {
    // A rank that has left with status 0 ends no generation: Rejoin() would wait for nothing.
    if (std::optional<absl::Status> left = worker::DepartureBehind(why)) return *std::move(left);
    absl::Status joined = context->Rejoin();
    if (joined.ok()) joined = StartTogether();
    if (joined.ok()) break;
    if (!CanRecover(joined)) return joined;
    DDPRUN_RETURN_IF_ERROR(LetGoOfStep());  // the next generation broke as well
  }
  if (Speaks()) {
    worker::Print(absl::StrFormat(
        "generation %d: goes on after step %d on %s, this one without a restart (%d ms)",
        context->generation(), course.step(), CountText(context->world_size(), "worker"),
        absl::ToInt64Milliseconds(MonotonicNow() - began)));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Session::Implementation::TakeStateOfOthers(
    const worker::StartMeeting& meeting) {
  if (!context->CanRejoin()) return false;
  if (trained.zero() != nullptr) return TakeShardsBack(meeting);
  std::vector<worker::StateOffer> offers;
  offers.reserve(meeting.notes.size());
  for (const worker::StartNote& note : meeting.notes) offers.push_back(note.offer);
  const worker::KnownStates known = worker::CompareOffers(offers);
  if (!known.newest.has_value()) return false;
  if (!known.AllHaveIt()) {
    if (HealsBeside(known, meeting.evaluation_is_done)) {
      DDPRUN_ASSIGN_OR_RETURN(
          healing, worker::HealingStep::Begin(*context, StateOfAll(), known, course, *feed));
    } else {
      DDPRUN_RETURN_IF_ERROR(worker::TakeNewestState(*context, StateOfAll(), known));
      // From here on this rank has the state, even if others are killed before all train.
      course.HasState(known.newest->generation);
      course.GoTo(known.newest->progress);
    }
  }
  const bool is_new = !known.versions[context->rank()].has_value();
  if (is_new && context->is_main()) SayWhereItGoesOn(course.progress());
  return true;
}

bool Session::Implementation::HealsBeside(const worker::KnownStates& known,
                                          bool evaluation_is_done) const {
  if (options.healing == "before") return false;
  if (!course.StepFollows(*known.newest, evaluation_is_done)) return false;
  // Otherwise parameters change before the end of a step, beside which they are sent.
  if (trained.MayStepEarly()) return false;
  // Without a constant batch a step would have fewer samples; and a SyncBatchNorm's statistics
  // would include activations of ranks that lack the parameters.
  if (!feed->is_constant() || worker::HasSyncBatchNorm(*trained.module())) return false;
  if (options.healing == "beside") return true;
  const auto learners =
      static_cast<uint32_t>(std::count(known.versions.begin(), known.versions.end(), known.newest));
  return worker::BesideTakesLess(known.bytes, known.step_time, context->world_size() - learners,
                                 learners);
}

bool Session::Implementation::KeepsReplicas() const {
  return trained.zero() != nullptr && context->CanRejoin() &&
         options.in_process_restart.has_value() && options.replicas > 0;
}

absl::StatusOr<bool> Session::Implementation::TakeShardsBack(const worker::StartMeeting& meeting) {
  if (!KeepsReplicas()) return false;
  if (replicas == nullptr) {
    replicas = std::make_unique<worker::ShardReplicas>(
        *context,
        worker::ShardedTraining{.module = *trained.module(),
                                .zero = *trained.zero(),
                                .extras = ExtrasOfAll(),
                                .average = trained.average()},
        static_cast<uint32_t>(options.replicas));
  }
  std::vector<uint32_t> hosts;
  std::vector<std::vector<worker::RecordKey>> records;
  for (const worker::StartNote& note : meeting.notes) {
    hosts.push_back(note.host);
    records.push_back(note.records);
  }
  replicas->ConnectBeside(hosts);
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<TrainingProgress> newest,
                          replicas->TakeBack(records));
  if (!newest.has_value()) return false;
  const bool is_new = !course.version().has_value();
  course.GoTo(*newest);
  course.HasState(context->generation());
  if (is_new && context->is_main()) SayWhereItGoesOn(course.progress());
  return true;
}

}  // namespace ddprun
