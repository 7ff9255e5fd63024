// Several Sessions one after the other in a process, as for a cross-validation.
//
// Sessions share the process' context, so that a fault in the second one is survived as in the
// first: a worker that lives stays in its Session and goes to the next generation. A worker that
// takes a killed one's place begins at the top of main(), in the first Session, which the others
// have left. It learns that when ranks exchange StartNotes. It then goes through that Session
// alone, in a world of one: it reads what the others have saved last (all have passed a barrier
// since), trains only what no file has, and writes nothing. The others ask again until all ranks
// are in the same Session:
//
//   generation 2   rank 0: Session 2          rank 1, new: Session 1, alone
//   asked again    rank 0: Session 2          rank 1:      Session 2; it takes rank 0's state
//
// The same holds for a surviving rank that was still at the end of a Session that the others had
// left.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/session/session_implementation.h"

namespace ddprun {

absl::Status Session::Implementation::GoAlone(uint64_t others_session) {
  Notify(absl::StrCat("rank ", context->rank(), " ends Session ", session_number, " (",
                      settings.name, ") alone: the others are in Session ", others_session));
  if (saver.checkpointer() != nullptr) saver.checkpointer()->LeaveGeneration();
  saver.SaveWith(nullptr);  // they are the process' context's, as these
  replicas.reset();
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<Context> alone, Context::Alone(*context));
  // The program may have the Context already, in a SyncBatchNorm of this Session's model or in a
  // variable of its own for all Sessions. So the object stays, and what it is connected to changes.
  std::swap(context->implementation(), alone->implementation());
  job = std::move(alone);
  DDPRUN_RETURN_IF_ERROR(feed->Reform(context->rank(), context->world_size()));
  return PlanSteps();
}

absl::Status Session::Implementation::TakeFolder() {
  if (options.CheckpointDirectory().empty()) return absl::OkStatus();
  std::error_code ignored;
  const std::string folder =
      std::filesystem::weakly_canonical(options.CheckpointDirectory(), ignored);
  const auto [taken, is_new] =
      context->implementation().session_folders.emplace(folder, settings.name);
  if (is_new) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the Sessions '", taken->second, "' and '", settings.name,
                   "' of one process both keep checkpoints in '", options.CheckpointDirectory(),
                   "': the second would go on from the first one's; give each its own folder, as "
                   "SessionOptions::Part does"));
}

void Session::Implementation::EndSession() {
  if (feed != nullptr) feed->End();  // its threads draw random numbers
  Context& shared = job != nullptr ? *job : *context;
  shared.Mark(ProgressPhase::kDone, course.step());
  shared.implementation().steps_before += course.step();
  if (job != nullptr) std::swap(context->implementation(), job->implementation());
  // So that random numbers between two Sessions are the same on all ranks, whatever they trained.
  torch::manual_seed(static_cast<uint64_t>(options.seed));
}

}  // namespace ddprun
