#include "worker/metrics/metrics_log.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace ddprun::worker {
namespace {

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return ErrnoStatus(error.value(), absl::StrCat("making the directory '", path, "' for metrics"));
}

void NotifyOfFailure(const absl::Status& written, bool& told) {
  if (written.ok() || std::exchange(told, true)) return;
  Notify(absl::StrCat("metrics are lost: ", written.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsLog>> MetricsLog::Open(const MetricsLogOptions& options,
                                                             absl::Time now) {
  std::optional<JsonLines> json_lines;
  std::optional<EventFile> events;
  if (!options.output_dir.empty() && options.json_lines) {
    DDPRUN_RETURN_IF_ERROR(MakeDirectories(options.output_dir));
    DDPRUN_ASSIGN_OR_RETURN(json_lines, JsonLines::Open(options.output_dir + "/metrics.jsonl",
                                                        options.resumed_step, options.generation));
  }
  if (!options.output_dir.empty() && options.tensorboard) {
    const std::string directory = options.output_dir + "/tensorboard";
    DDPRUN_RETURN_IF_ERROR(MakeDirectories(directory));
    DDPRUN_ASSIGN_OR_RETURN(events, EventFile::Create(directory, options.resumed_step + 1, now));
  }
  return std::unique_ptr<MetricsLog>(
      new MetricsLog(options, std::move(json_lines), std::move(events)));
}

MetricsLog::MetricsLog(const MetricsLogOptions& options, std::optional<JsonLines> json_lines,
                       std::optional<EventFile> events)
    : json_lines_(std::move(json_lines)),
      events_(std::move(events)),
      console_(options.console, options.console_fd, options.line_interval) {
  facts_.total_steps = options.total_steps;
  std::vector<const AppendFile*> files;
  if (json_lines_.has_value()) files.push_back(&json_lines_->file());
  if (events_.has_value()) files.push_back(&events_->file());
  if (!files.empty()) syncer_.emplace(std::move(files), options.sync_interval);
}

void MetricsLog::Write(const MetricsRecord& record) {
  if (json_lines_.has_value()) NotifyOfFailure(json_lines_->Append(record), json_lines_told_);
  if (events_.has_value()) NotifyOfFailure(events_->Append(record), events_told_);
}

void MetricsLog::ShowStep(int64_t step, absl::Duration elapsed, std::optional<absl::Duration> left,
                          const MetricsRecord* record, Instant now) {
  facts_.step = step;
  facts_.elapsed = elapsed;
  facts_.left = left;
  if (record != nullptr) facts_.values = record->values;
  console_.Step(facts_, record != nullptr, now);
}

void MetricsLog::Sync() {
  if (syncer_.has_value()) syncer_->Sync();
}

}  // namespace ddprun::worker
