#ifndef DDPRUN_LAUNCHER_SCHEDULERS_SLURM_REQUEUE_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_SLURM_REQUEUE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ddprun::launcher {

// What is known of the runs of a job that Slurm requeues. It is kept in the job's comment, the one
// text of a job that outlives its nodes and that its user may change: behind the user's own words,
// as "ddprun:no_progress=2,step=17".
struct RequeueRecord {
  uint32_t no_progress = 0;      // runs in a row, up to the last one
  std::optional<uint64_t> step;  // the highest that one of them marked; nullopt = none did
  std::string comment;           // the user's own words

  friend bool operator==(const RequeueRecord&, const RequeueRecord&) = default;
};

// What the run that ends has brought.
struct RunResult {
  std::optional<uint64_t> step;  // the highest that its workers marked
  absl::Duration uptime;
};

// Pure; threads: any.

// Reads what `scontrol show job` prints. Any bytes are fine: a record that can't be read is none.
RequeueRecord ReadRequeueRecord(absl::string_view shown);
// The comment that holds it.
std::string CommentText(const RequeueRecord& record);
// The record with this run. As for --give_up_after, progress is a step beyond the highest one;
// where no run has marked any, a run of kProgressUptime.
RequeueRecord CountRun(RequeueRecord record, const RunResult& run);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_SLURM_REQUEUE_H_
