#include "tools/watch/time_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ddprun::launcher {

std::string TimeText(uint64_t ms) {
  const uint64_t seconds = ms / 1000;
  if (ms < 1000) return absl::StrCat(ms, " ms");
  if (seconds < 60) return absl::StrFormat("%.1f s", static_cast<double>(ms) / 1e3);
  if (seconds < 3600) return absl::StrCat(seconds / 60, " min ", seconds % 60, " s");
  if (seconds < 86400) return absl::StrCat(seconds / 3600, " h ", seconds / 60 % 60, " min");
  return absl::StrCat(seconds / 86400, " d ", seconds / 3600 % 24, " h");
}

std::string PhaseText(const rendezvous::v1::JobStatus& job) {
  const int generations = job.history_size();
  const bool between = job.phase() != "running" && generations > 0 &&
                       job.history(generations - 1).has_ended_ms_ago();
  if (!between) return absl::StrCat(job.phase(), " for ", TimeText(job.age_ms()));
  return absl::StrCat(job.phase(), " for ", TimeText(job.history(generations - 1).ended_ms_ago()),
                      " (the job is ", TimeText(job.age_ms()), " old)");
}

std::string RestartsText(const rendezvous::v1::JobStatus& job) {
  const std::string made = absl::StrCat("restarts ", job.restart_count());
  if (job.restart_count() > job.max_restarts()) return made;
  return absl::StrCat(made, " of ", job.max_restarts());
}

std::string RangeText(uint64_t first, uint64_t last) {
  return first == last ? absl::StrCat(first) : absl::StrCat(first, " to ", last);
}

}  // namespace ddprun::launcher
