// Several Sessions one after the other in a process, as of a k-fold.
//
// They share the process' context, so that a fault in the second one is survived as in the first:
// who lives stays in its Session and goes to the next generation. Who takes a killed worker's place
// begins at the top of main(), in the first Session, which the others have left. When ranks say
// where they are (StartNote) it learns that; it then ends that Session alone, in a world of one,
// reading what the others have saved last (all have passed a barrier since), training only what no
// file has, and writing nothing. The others ask again until all are in the same one:
//
//   generation 2   rank 0: Session 2          rank 1, new: Session 1, alone
//   asked again    rank 0: Session 2          rank 1:      Session 2; it takes rank 0's state
//
// So does a rank that was killed's peer and still was at the end of a Session the others had left.
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/session/session_implementation.h"

namespace ddprun {

absl::Status Session::Implementation::GoAlone(uint64_t others_session) {
  Notify(absl::StrCat("rank ", context->rank(), " ends Session ", session_number, " (",
                      settings.name, ") alone: the others are in Session ", others_session));
  if (checkpointer != nullptr) checkpointer->LeaveGeneration();
  checkpointer.reset();  // of the process' context, as these
  replicas.reset();
  job = context;
  DDPRUN_ASSIGN_OR_RETURN(context, Context::Alone(*job));
  DDPRUN_RETURN_IF_ERROR(loader->Reform(context->rank(), context->world_size()));
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
  loader.reset();  // its threads use what follows
  Context& shared = job != nullptr ? *job : *context;
  shared.Mark(ProgressPhase::kDone, progress.step);
  shared.implementation().steps_before += progress.step;
  // What a program draws between two Sessions is the same on all ranks, whatever they trained.
  torch::manual_seed(static_cast<uint64_t>(options.seed));
}

}  // namespace ddprun
