#ifndef DDPRUN_TOOLS_WATCH_CONTROL_COMMANDS_H_
#define DDPRUN_TOOLS_WATCH_CONTROL_COMMANDS_H_

#include "tools/watch/operate_options.h"
#include "tools/watch/service_options.h"

namespace ddprun::launcher {

// `ddprun status`: prints the jobs of a rendezvous service and their nodes, as a table or as JSON
// (proto GetStatusReply in protobuf's JSON form). Returns the exit status: 0, or 1 with one line on
// stderr.
int ShowStatus(const StatusOptions& options);

// `ddprun stop`: ends a job, and prints its name. Exit status as above.
int StopJob(StopOptions options);

// `ddprun drain`: makes a node leave a job. Exit status 0 once the node has left, with --no-wait
// once the service has accepted that.
int DrainNode(DrainOptions options);

// `ddprun events`: prints what happened to a job, as text or as JSON lines.
int ShowEvents(EventsOptions options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_CONTROL_COMMANDS_H_
