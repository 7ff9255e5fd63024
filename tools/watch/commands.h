#ifndef DDPRUN_TOOLS_WATCH_COMMANDS_H_
#define DDPRUN_TOOLS_WATCH_COMMANDS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "launcher/os/ended_jobs.h"
#include "tools/watch/operate_options.h"
#include "tools/watch/service_options.h"
#include "tools/watch/status_text.h"

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

// `ddprun status --status_page`: serves page and metrics of a service until Ctrl-C ends the
// process. If the job's record is in etcd, shows those of the node that currently serves the job,
// until the job has ended. Returns the exit status.
int ServePage(StatusOptions options);

// `ddprun top`: shows a job on the whole terminal, updated until q, Ctrl-C or the end of the
// service. Returns the exit status: 0, or 1 with one line on stderr.
int ShowTop(const TopOptions& options);

// `ddprun logs`: prints the output of a job's workers on all its nodes and, with --follow, new
// output across restarts until the job has ended. Returns the exit status: 0, or 1 with a line on
// stderr for each node whose logs can't be read.
int ShowLogs(const LogsOptions& options);

// `ddprun status --ended`: prints the jobs of this user that have ended, from their records, or
// only that of --rdzv_id. Returns the exit status: 0, or 1 with one line on stderr if there is
// none.
int ShowEnded(const StatusOptions& options);

// The text of ShowEnded(), lines with their ends. Requires: `jobs` newest first. Machines other
// than `own_host` are named. kWide: all jobs, with times and rules. Pure.
std::string EndedText(const std::vector<EndedJob>& jobs, const std::string& own_host,
                      absl::Time now, StatusDetail detail);
// The JSON of ShowEnded(): {"ended": [the fields of a record, …]}, with each time as text, too.
// Pure.
std::string EndedJson(const std::vector<EndedJob>& jobs);

// The error of `ddprun status` if there is no job. Adds to NOT_FOUND how the last job ended, if
// that was within a day and is the requested one.
absl::Status WithEndedHint(const absl::Status& status, const std::string& run_id);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_COMMANDS_H_
