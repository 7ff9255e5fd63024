#ifndef DDPRUN_LAUNCHER_SCHEDULERS_SLURM_RUN_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_SLURM_RUN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "launcher/core/launch_plan.h"
#include "launcher/schedulers/slurm_command.h"

namespace ddprun::launcher {

// The runs of a job that Slurm requeues. The record is kept in the job's comment, the only text of
// a job that outlives its nodes and that its user may change: after the user's own text, as
// "ddprun:no_progress=2,step=17".
struct RequeueRecord {
  uint32_t no_progress = 0;      // runs in a row without progress, up to the last one
  std::optional<uint64_t> step;  // the highest that a run marked; nullopt = none did
  std::string comment;           // the user's own text

  friend bool operator==(const RequeueRecord&, const RequeueRecord&) = default;
};

// The result of the run that ends.
struct RunResult {
  std::optional<uint64_t> step;  // the highest that its workers marked
  absl::Duration uptime;
};

// Pure; threads: any.

// Reads the output of `scontrol show job`. Accepts any bytes: an invalid record is an empty one.
RequeueRecord ReadRequeueRecord(absl::string_view shown);
// The comment with the record.
std::string CommentText(const RequeueRecord& record);
// Adds a run to the record. As for --give_up_after, progress is a step beyond the highest one; if
// no run has marked steps, a run of kProgressUptime.
RequeueRecord CountRun(RequeueRecord record, const RunResult& run);

// How the tasks of a Slurm step on one node detect the end of the first of them, which launches the
// workers: the first one listens on an abstract unix socket (unix(7)), and the others connect. The
// kernel closes their connections when the last process that holds the socket is gone: the agent
// and its keeper.
//
// One task launches for all, because a node's workers need one parent: LOCAL_RANK, the keeper and
// hang detection depend on it. The others stay, because sites end a step some time after its first
// task has ended (WaitTime). A file with a lock isn't used, because it may be left over or lie on a
// file system without locks; nor is /proc, which is blind in containers and has a race before
// execve(2).

// Listens on `name`. Nothing is ever accepted.
// Errors: errno, ALREADY_EXISTS when another process listens there.
absl::StatusOr<Fd> HoldNodeSocket(const std::string& name);

// Returns when no process holds `name` any more. Signals that end a step by default are ignored
// until then. Waits up to `patience` for the socket to appear, because the first task may start
// later. Returns: whether a process held the socket.    Errors: errno.
absl::StatusOr<bool> AwaitNodeSocket(const std::string& name, absl::Duration patience);

// Runs Slurm's programs, and waits for other tasks of a node. Threads: main.

// Runs `ddprun slurm`: prints the script, or executes sbatch(1) with it in place of this process.
// Returns: the exit status.
int GiveScript(const SlurmJob& job);

// Waits for the end of this node's first task, which launches the workers; returns at once if that
// is gone. Returns: the exit status.
int AwaitFirstTask(const std::string& node_socket);

// The exit status of a preempted run, before its job is requeued: kExitPreempted, or
// kExitFailedForGood after plan.give_up_after runs in a row without progress, with a line for the
// user. Slurm keeps the count; if Slurm can't be queried, the job is requeued.    Bound: 10 s.
int StatusBeforeRequeue(const RequeuePlan& plan, const RunResult& run);

// Writes the exit status to the plan's file for the batch script, if it has one. A failure is a
// warning.
void WriteStatusFile(const RequeuePlan& plan, int status);

// Requeues the job: executes scontrol(1) in place of this process. Returns only if that fails,
// after a message.
void RequeueJob(const std::string& job);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_SLURM_RUN_H_
