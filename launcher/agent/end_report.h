#ifndef DDPRUN_LAUNCHER_AGENT_END_REPORT_H_
#define DDPRUN_LAUNCHER_AGENT_END_REPORT_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "launcher/core/launch_plan.h"
#include "launcher/core/supervisor/supervisor_events.h"
#include "launcher/os/ended_jobs.h"

namespace ddprun::launcher {

// Makes the folder of --report_file at the start, so that a wrong path doesn't show only at the end
// of the job. Errors: of mkdir(2), access(2), with the path. Threads: any.
absl::Status CheckReportFile(const LaunchPlan& plan);

// Writes the files about the end of the job (docs/LOGS.md): --report_file and the launcher's own
// TORCHELASTIC_ERROR_FILE. A failed write is reported on stderr and isn't an error. `node_id`: this
// agent's, as in WorkerFailure. Blocks for the writes. Threads: any.
void WriteEndFiles(const LaunchPlan& plan, const std::string& node_id, const Exit& exit);
// The end as `ddprun status --ended` shows it, without `logs`. Params: lasted: since this agent's
// start. now: the wall clock. Pure.
EndedJob EndedJobOf(const LaunchPlan& plan, const std::string& node_id, const Exit& exit,
                    absl::Duration lasted, absl::Time now);
// Writes the record of a job's end (RecordEndedJob) on a thread of its own, because the file server
// of a home folder may be unreachable. A failed write is ignored. Returns: a notification for the
// end of the write; null = nothing is written. Threads: any.
std::shared_ptr<absl::Notification> KeepEndedJob(EndedJob job, uint64_t term);
// Prints how the job ended, and the failure report, on stderr. Threads: any.
void ReportEnd(const LaunchPlan& plan, const Exit& exit);

// An advice's command without ssh, for its target machine: "free -h; df" for "ssh host3 'free -h;
// df'". Other commands are returned unchanged. Pure.
std::string WithoutSsh(absl::string_view command);

// The report as JSON; the schema is in docs/LOGS.md. Invalid UTF-8 is replaced.
// `now`: the wall clock. Threads: any.
std::string ReportJson(const LaunchPlan& plan, const std::string& node_id, const Exit& exit,
                       absl::Time now);

// The contents of the launcher's own error file (TORCHELASTIC_ERROR_FILE), as torchrun writes it;
// nullopt = no file: the job succeeded, or the first cause has no error file. `now`: the wall
// clock. Reads the error file of a worker of this node. Threads: any.
std::optional<std::string> OwnErrorFile(const std::string& node_id, const Exit& exit,
                                        absl::Time now);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_END_REPORT_H_
