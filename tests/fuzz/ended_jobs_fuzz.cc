#include "tests/fuzz/ended_jobs_fuzz.h"

#include <optional>

#include "base/check.h"
#include "base/text.h"
#include "launcher/os/ended_jobs.h"

namespace ddprun::launcher {

bool FuzzEndedJob(absl::string_view bytes) {
  const std::optional<EndedJob> job = ParseEndedJob(bytes);
  if (!job.has_value()) return false;
  DDPRUN_CHECK(!job->run_id.empty() && !job->outcome.empty(), "a record without a name");
  DDPRUN_CHECK(job->began_ms >= 0 && job->ended_ms >= 0, "a time before 1970");
  DDPRUN_CHECK(IsUtf8(job->reason), "a text that can't be printed");
  const std::optional<EndedJob> again = ParseEndedJob(FormatEndedJob(*job));
  DDPRUN_CHECK(again.has_value(), "the record's own form is no record");
  DDPRUN_CHECK(again->ended_ms == job->ended_ms && again->status == job->status,
               "the record's own form says something else");
  return true;
}

}  // namespace ddprun::launcher
