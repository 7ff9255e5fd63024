#include "launcher/schedulers/slurm_requeue.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "rendezvous/core/timing.h"

namespace ddprun::launcher {
namespace {

constexpr absl::string_view kMark = "ddprun:no_progress=";
constexpr absl::string_view kStep = ",step=";

}  // namespace

RequeueRecord ReadRequeueRecord(absl::string_view shown) {
  RequeueRecord record;
  for (absl::string_view line : absl::StrSplit(shown, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!absl::ConsumePrefix(&line, "Comment=")) continue;
    const size_t mark = line.rfind(kMark);
    record.comment = std::string(absl::StripAsciiWhitespace(line.substr(0, mark)));
    if (mark == absl::string_view::npos) return record;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line.substr(mark + kMark.size()), absl::MaxSplits(kStep, 1));
    uint64_t step = 0;
    if (!absl::SimpleAtoi(parts.first, &record.no_progress)) record.no_progress = 0;
    if (absl::SimpleAtoi(parts.second, &step)) record.step = step;
    return record;
  }
  return record;
}

std::string CommentText(const RequeueRecord& record) {
  return absl::StrCat(record.comment, record.comment.empty() ? "" : " ", kMark, record.no_progress,
                      record.step.has_value() ? absl::StrCat(kStep, *record.step) : "");
}

RequeueRecord CountRun(RequeueRecord record, const RunResult& run) {
  const bool new_step = run.step.has_value() && (!record.step || *run.step > *record.step);
  const bool unmarked = !run.step.has_value() && !record.step.has_value();
  if (new_step) record.step = run.step;
  const bool advanced = new_step || (unmarked && run.uptime >= rendezvous::kProgressUptime);
  record.no_progress = advanced ? 0 : record.no_progress + 1;
  return record;
}

}  // namespace ddprun::launcher
