#include "tools/watch/commands.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "launcher/machine/host_probe.h"
#include "rendezvous/web/status_json.h"
#include "tools/watch/status_text.h"

namespace ddprun::launcher {
namespace {

// These fill a screen.
constexpr size_t kJobsShown = 10;
constexpr absl::Duration kLately = absl::Hours(24);

std::vector<EndedJob> EndedJobsOf(const std::string& run_id) {
  std::vector<EndedJob> jobs = ReadEndedJobs(EndedJobsFolder());
  std::erase_if(jobs, [&](const EndedJob& job) { return !run_id.empty() && job.run_id != run_id; });
  return jobs;
}

// "failed for good 3 min 2 s ago".
std::string WhatAndWhen(const EndedJob& job, absl::Time now) {
  const int64_t ago_ms = std::max<int64_t>(0, absl::ToUnixMillis(now) - job.ended_ms);
  return absl::StrCat(
      job.outcome == "left" ? "this node left it" : absl::StrReplaceAll(job.outcome, {{"_", " "}}),
      " ", TimeText(static_cast<uint64_t>(ago_ms)), " ago");
}

uint64_t LastedMs(const EndedJob& job) {
  return static_cast<uint64_t>(std::max<int64_t>(0, job.ended_ms - job.began_ms));
}

std::string JobText(const EndedJob& job, const std::string& own_host, absl::Time now,
                    StatusDetail detail) {
  const bool is_wide = detail == StatusDetail::kWide;
  std::string text = absl::StrCat(
      "job ", job.run_id, job.host == own_host ? "" : absl::StrCat(" on ", job.host), ": ",
      WhatAndWhen(job, now), ", ran for ", TimeText(LastedMs(job)), ", exit status ", job.status,
      ", restarts ", job.restart_count,
      job.restart_count > job.max_restarts ? "" : absl::StrCat(" of ", job.max_restarts), "\n  ",
      job.description, "\n");
  if (!job.reason.empty() && (is_wide || job.outcome != "succeeded")) {
    absl::StrAppend(&text, "  ", job.reason,
                    is_wide && !job.rule.empty() ? absl::StrCat(" (rule ", job.rule, ")") : "",
                    "\n");
  }
  if (!job.logs.empty()) absl::StrAppend(&text, "  logs: ", job.logs, "\n");
  if (!is_wide) return text;
  const auto time = [](int64_t ms) {
    return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(ms), absl::LocalTimeZone());
  };
  absl::StrAppend(&text, "  began ", time(job.began_ms), ", ended ", time(job.ended_ms),
                  ", generation ", job.generation, ", reported by node ", job.node, "\n");
  return text;
}

}  // namespace

std::string EndedText(const std::vector<EndedJob>& jobs, const std::string& own_host,
                      absl::Time now, StatusDetail detail) {
  const size_t shown =
      detail == StatusDetail::kWide ? jobs.size() : std::min(jobs.size(), kJobsShown);
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    absl::StrAppend(&text, JobText(jobs[i], own_host, now, detail));
  }
  if (shown < jobs.size()) {
    absl::StrAppend(&text, "…  ", jobs.size() - shown, " more before (see -o wide)\n");
  }
  return text;
}

std::string EndedJson(const std::vector<EndedJob>& jobs) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const EndedJob& job : jobs) {
    Json object = Json::parse(FormatEndedJob(job));
    object["lasted_ms"] = LastedMs(job);
    object["began_at"] = rendezvous::WallTimeText(absl::FromUnixMillis(job.began_ms));
    object["ended_at"] = rendezvous::WallTimeText(absl::FromUnixMillis(job.ended_ms));
    list.push_back(std::move(object));
  }
  return Json({{"ended", std::move(list)}}).dump(2);
}

int ShowEnded(const StatusOptions& options) {
  const std::vector<EndedJob> jobs = EndedJobsOf(options.run_id);
  if (jobs.empty()) {
    const std::string name =
        options.run_id.empty() ? "" : absl::StrCat(Quoted(options.run_id), " ");
    Notify(absl::StrCat("error: no job ", name, "of yours is known to have ended on this machine"));
    return 1;
  }
  if (options.form == OutputForm::kJson) {
    std::puts(EndedJson(jobs).c_str());
    return 0;
  }
  const bool is_wide = options.form == OutputForm::kWide || !options.run_id.empty();
  const std::string text = EndedText(jobs, Hostname(), absl::Now(),
                                     is_wide ? StatusDetail::kWide : StatusDetail::kPlain);
  std::fputs(Printable(text).c_str(), stdout);
  return 0;
}

absl::Status WithEndedHint(const absl::Status& status, const std::string& run_id) {
  if (!absl::IsNotFound(status)) return status;
  const std::vector<EndedJob> jobs = EndedJobsOf(run_id);
  const absl::Time now = absl::Now();
  if (jobs.empty() || absl::FromUnixMillis(jobs.front().ended_ms) < now - kLately) return status;
  return absl::NotFoundError(absl::StrCat(status.message(), "; job ", Quoted(jobs.front().run_id),
                                          " ", Printable(WhatAndWhen(jobs.front(), now)),
                                          " (see ddprun status --ended)"));
}

}  // namespace ddprun::launcher
