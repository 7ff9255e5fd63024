#ifndef DDPRUN_LAUNCHER_SCHEDULERS_SLURM_COMMAND_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_SLURM_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/argument.h"

namespace ddprun::launcher {

// `ddprun slurm`: the batch script of a job.
struct SlurmJob {
  std::vector<std::string> sbatch;  // options for sbatch as given, each with its value
  std::vector<std::string> launch;  // the options of ddprun, the script and its arguments
  bool submit = false;
  std::string script;  // BatchScript() of it
};

// Splits the arguments at "--": those before it are sbatch's, except --submit; the rest is a
// launch. Errors: usage errors (argument.h).
absl::StatusOr<OptionsOrHelp<SlurmJob>> ParseSlurmOptions(
    const std::vector<std::string>& arguments);

// The script. Options of sbatch that aren't given are filled in: the job's name, one task a node,
// --requeue, appended output, and for a job that may shrink --no-kill.
// Params: entry_point: as in LaunchPlan. elastic: the job goes on with fewer nodes.
// Errors: usage — a --signal that can't be read.    Pure; threads: any.
absl::StatusOr<std::string> BatchScript(const SlurmJob& job, const std::string& entry_point,
                                        bool elastic);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_SLURM_COMMAND_H_
