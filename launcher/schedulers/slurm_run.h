#ifndef DDPRUN_LAUNCHER_SCHEDULERS_SLURM_RUN_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_SLURM_RUN_H_

#include <string>

#include "launcher/core/launch_plan.h"
#include "launcher/schedulers/slurm_command.h"
#include "launcher/schedulers/slurm_requeue.h"

namespace ddprun::launcher {

// What `ddprun` does with Slurm's programs, and beside a node's other tasks. Threads: main.

// Carries out `ddprun slurm`: the script to the console, or to sbatch(1), which takes the place of
// this process. Returns: the exit status.
int GiveScript(const SlurmJob& job);

// Waits for the end of the first task of this node, which launches, and whose end counts; one that
// is gone already leaves nothing to wait for. Returns: the exit status.
int AwaitFirstTask(const std::string& node_socket);

// The exit status of a preempted run, whose job is about to be requeued: kExitPreempted, or
// kExitFailedForGood after so many runs in a row without progress, and then the user is told why.
// Slurm keeps the count; if it can't be asked, the job is requeued.    Bound: 10 s.
int StatusBeforeRequeue(const RequeuePlan& plan, const RunResult& run);

// Has Slurm run the job again: scontrol(1) takes the place of this process. Returns only when it
// can't be run, which is told.
void RequeueJob(const std::string& job);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_SLURM_RUN_H_
