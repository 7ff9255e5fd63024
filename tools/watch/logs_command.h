#ifndef DDPRUN_TOOLS_WATCH_LOGS_COMMAND_H_
#define DDPRUN_TOOLS_WATCH_LOGS_COMMAND_H_

#include "tools/watch/operate_options.h"

namespace ddprun::launcher {

// `ddprun logs`: prints the output of a job's workers on all its nodes and, with --follow, new
// output across restarts until the job has ended. Returns the exit status: 0, or 1 with a line on
// stderr for each node whose logs can't be read.
int ShowLogs(const LogsOptions& options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_LOGS_COMMAND_H_
