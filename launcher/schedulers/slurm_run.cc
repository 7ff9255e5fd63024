#include "launcher/schedulers/slurm_run.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "launcher/core/exit_status.h"
#include "launcher/os/tool_output.h"
#include "launcher/schedulers/node_socket.h"
#include "launcher/schedulers/slurm_defaults.h"
#include "rendezvous/core/timing.h"

namespace ddprun::launcher {
namespace {

// How much later than this one the first task of a node may start.
constexpr absl::Duration kFirstTaskPatience = absl::Seconds(10);
constexpr absl::Duration kSlurmPatience = absl::Seconds(5);

// Counts the run in the job's comment.
absl::StatusOr<RequeueRecord> KeepCount(const std::string& job, const RunResult& run) {
  DDPRUN_ASSIGN_OR_RETURN(const std::string shown,
                          ToolOutput({"scontrol", "show", "job", job}, kSlurmPatience));
  RequeueRecord record = CountRun(ReadRequeueRecord(shown), run);
  DDPRUN_RETURN_IF_ERROR(ToolOutput({"scontrol", "update", absl::StrCat("JobId=", job),
                                     absl::StrCat("Comment=", CommentText(record))},
                                    kSlurmPatience)
                             .status());
  return record;
}

}  // namespace

int GiveScript(const SlurmJob& job) {
  if (!job.submit) {
    std::fputs(job.script.c_str(), stdout);
    return 0;
  }
  absl::StatusOr<FdPair> pipe = MakePipe();
  absl::Status status = pipe.status();
  if (status.ok() && (write(pipe->second.get(), job.script.data(), job.script.size()) !=
                          static_cast<ssize_t>(job.script.size()) ||
                      dup2(pipe->first.get(), STDIN_FILENO) < 0)) {
    status = ErrnoStatus(errno, "give the script to sbatch");
  }
  if (status.ok()) {
    execlp("sbatch", "sbatch", static_cast<char*>(nullptr));
    status = ErrnoStatus(errno, "run sbatch");
  }
  Notify(absl::StrCat("error: ", status.message(),
                      "; without --submit the script is printed, for a machine that has Slurm"));
  return 1;
}

int AwaitFirstTask(const std::string& node_socket) {
  const absl::StatusOr<bool> held = AwaitNodeSocket(node_socket, kFirstTaskPatience);
  if (held.ok()) return 0;
  Notify(absl::StrCat("error: ", held.status().message()));
  return 1;
}

int StatusBeforeRequeue(const RequeuePlan& plan, const RunResult& run) {
  const absl::StatusOr<RequeueRecord> record = KeepCount(plan.job, run);
  if (!record.ok()) {
    Notify(absl::StrCat(
        "warning: can't count the runs of job ", plan.job,
        ", so nothing ends it if they bring no progress: ", record.status().message()));
    return kExitPreempted;
  }
  if (record->no_progress == 0) return kExitPreempted;
  const std::string what =
      record->step.has_value()
          ? absl::StrCat("none reached a step beyond ", *record->step)
          : absl::StrCat("none lasted ", absl::FormatDuration(rendezvous::kProgressUptime));
  if (record->no_progress < plan.give_up_after) {
    Notify(
        absl::StrCat("warning: runs of this job in a row without progress: ", record->no_progress,
                     " (", what, "); it isn't requeued after ", plan.give_up_after));
    return kExitPreempted;
  }
  Notify(absl::StrCat("error: job ", plan.job, " isn't requeued any more: of ", record->no_progress,
                      " runs in a row ", what,
                      ". Does the program save, does it load what it saved, and is the time limit "
                      "long enough for that? ",
                      kGiveUpVariable, " in the batch script is that number"));
  return kExitFailedForGood;
}

void RequeueJob(const std::string& job) {
  Notify(absl::StrCat(
      "the node of the service is lost, and the batch script with it: requeueing job ", job));
  execlp("scontrol", "scontrol", "requeue", job.c_str(), static_cast<char*>(nullptr));
  Notify(absl::StrCat("warning: ", ErrnoStatus(errno, "run scontrol").message()));
}

}  // namespace ddprun::launcher
