#ifndef DDPRUN_TOOLS_WATCH_ENDED_COMMAND_H_
#define DDPRUN_TOOLS_WATCH_ENDED_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "launcher/os/ended_jobs.h"
#include "tools/watch/service_options.h"
#include "tools/watch/status_text.h"

namespace ddprun::launcher {

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

#endif  // DDPRUN_TOOLS_WATCH_ENDED_COMMAND_H_
