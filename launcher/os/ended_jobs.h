#ifndef DDPRUN_LAUNCHER_OS_ENDED_JOBS_H_
#define DDPRUN_LAUNCHER_OS_ENDED_JOBS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// How a job ended, as recorded by the last of its agents that wrote a record.
struct EndedJob {
  std::string run_id;
  std::string description;  // as in JobSpec
  // As in --report_file: "succeeded", "failed", …; "left" and "lost" say how one agent ended.
  std::string outcome;
  int64_t status = 0;  // exit status of that agent
  std::string reason;  // one sentence for people; "" = none
  std::string rule;    // as in Verdict; "" = the agent ended without a verdict
  int64_t generation = 0;
  int64_t restart_count = 0;
  int64_t max_restarts = 0;
  std::string node;      // node id of that agent
  std::string host;      // its machine
  std::string logs;      // folder of the job's output on that machine; "" = none was kept
  int64_t began_ms = 0;  // wall clock, since 1970
  int64_t ended_ms = 0;  // the same
};

// How many records a folder keeps: the newest.
inline constexpr size_t kEndedJobsMax = 100;

// The folder of this user's records: $XDG_STATE_HOME/ddprun/ended; "" = the environment names none.
std::string EndedJobsFolder();

// Writes the record of a job's end, a file that only this user can read, and removes the oldest
// records. A job has one record, also if several machines share the folder: its verdict, or what an
// agent knew that ended without one. Params: term: of the service that had the job; it
// distinguishes jobs of one run id. Errors: of open(2), write(2), rename(2). Blocks. Threads: any.
absl::Status RecordEndedJob(const std::string& folder, EndedJob job, uint64_t term);

// The records, newest first; other files are left out. Blocks. Threads: any.
std::vector<EndedJob> ReadEndedJobs(const std::string& folder);

// One record as a line of JSON. Invalid UTF-8 is replaced, and long texts are cut. Pure.
std::string FormatEndedJob(const EndedJob& job);
// The inverse. nullopt = not a record. Accepts any bytes. Pure.
std::optional<EndedJob> ParseEndedJob(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_ENDED_JOBS_H_
