#ifndef DDPRUN_LAUNCHER_SCHEDULERS_SLURM_REQUEUE_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_SLURM_REQUEUE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ddprun::launcher {

// The runs of a job that Slurm requeues. The record is kept in the job's comment, the only text of
// a job that outlives its nodes and that its user may change: after the user's own text, as
// "ddprun:no_progress=2,step=17".
struct RequeueRecord {
  uint32_t no_progress = 0;      // runs in a row without progress, up to the last one
  std::optional<uint64_t> step;  // the highest that a run marked; nullopt = none did
  std::string comment;           // the user's own text

  friend bool operator==(const RequeueRecord&, const RequeueRecord&) = default;
};

// The result of the run that ends.
struct RunResult {
  std::optional<uint64_t> step;  // the highest that its workers marked
  absl::Duration uptime;
};

// Pure; threads: any.

// Reads the output of `scontrol show job`. Accepts any bytes: an invalid record is an empty one.
RequeueRecord ReadRequeueRecord(absl::string_view shown);
// The comment with the record.
std::string CommentText(const RequeueRecord& record);
// Adds a run to the record. As for --give_up_after, progress is a step beyond the highest one; if
// no run has marked steps, a run of kProgressUptime.
RequeueRecord CountRun(RequeueRecord record, const RunResult& run);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_SLURM_REQUEUE_H_
