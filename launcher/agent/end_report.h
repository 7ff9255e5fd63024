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

// Makes the folder of --report_file, so that it isn't found out at the end that it can't be
// written. Errors: of mkdir(2), access(2), with the path. Threads: any.
absl::Status CheckReportFile(const LaunchPlan& plan);

// What an agent leaves behind about the end of its job (docs/LOGS.md): --report_file and the
// launcher's own TORCHELASTIC_ERROR_FILE. What can't be written is said on stderr, and is no reason
// to fail. `node_id`: this agent's, as in WorkerFailure. Blocks for the writes. Threads: any.
void WriteEndFiles(const LaunchPlan& plan, const std::string& node_id, const Exit& exit);
// The end as `ddprun status --ended` shows it, without `logs`. Params: lasted: since this agent's
// start. now: the wall clock. Pure.
EndedJob EndedJobOf(const LaunchPlan& plan, const std::string& node_id, const Exit& exit,
                    absl::Duration lasted, absl::Time now);
// Writes the record of a job's end (RecordEndedJob) on a thread of its own, because the server of a
// home folder may be gone. A record that can't be written changes nothing, and nothing is said.
// Returns: the notification of the write's end; null = nothing is written. Threads: any.
std::shared_ptr<absl::Notification> KeepEndedJob(EndedJob job, uint64_t term);
// Words and the failure report, on stderr. Threads: any.
void ReportEnd(const LaunchPlan& plan, const Exit& exit);

// What an advice's command is on the machine that it would go to: "ssh host3 'free -h; df'" is
// "free -h; df". Other commands stay as they are. Pure.
std::string WithoutSsh(absl::string_view command);

// The report as JSON; the schema is in docs/LOGS.md. Texts that are no UTF-8 are mended.
// `now`: the wall clock. Threads: any.
std::string ReportJson(const LaunchPlan& plan, const std::string& node_id, const Exit& exit,
                       absl::Time now);

// What the launcher's own error file (TORCHELASTIC_ERROR_FILE) says; nullopt = nothing is written:
// all went well, or the first cause has no error file. `now`: the wall clock. Reads the error file
// of a worker of this node. Threads: any.
std::optional<std::string> OwnErrorFile(const std::string& node_id, const Exit& exit,
                                        absl::Time now);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_END_REPORT_H_
