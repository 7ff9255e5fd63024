#ifndef DDPRUN_LAUNCHER_SCHEDULERS_SLURM_RUN_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_SLURM_RUN_H_

#include <string>

#include "launcher/core/launch_plan.h"
#include "launcher/schedulers/slurm_command.h"
#include "launcher/schedulers/slurm_requeue.h"

namespace ddprun::launcher {

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

// Requeues the job: executes scontrol(1) in place of this process. Returns only if that fails,
// after a message.
void RequeueJob(const std::string& job);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_SLURM_RUN_H_
