#ifndef DDPRUN_TOOLS_WATCH_PAGE_COMMAND_H_
#define DDPRUN_TOOLS_WATCH_PAGE_COMMAND_H_

#include "tools/watch/service_options.h"

namespace ddprun::launcher {

// `ddprun status --status_page`: serves page and metrics of a service until Ctrl-C ends the
// process. If the job's record is in etcd, shows those of the node that currently serves the job,
// until the job has ended. Returns the exit status.
int ServePage(StatusOptions options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_PAGE_COMMAND_H_
