#ifndef DDPRUN_WORKER_METRICS_METRICS_LOG_H_
#define DDPRUN_WORKER_METRICS_METRICS_LOG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "worker/metrics/append_file.h"
#include "worker/metrics/console.h"
#include "worker/metrics/event_file.h"
#include "worker/metrics/json_lines.h"
#include "worker/metrics/record.h"

namespace ddprun::worker {

struct MetricsLogOptions {
  std::string output_dir;  // "" = no files
  bool json_lines = true;
  bool tensorboard = true;
  ConsoleKind console = ConsoleKind::kNone;
  int console_fd = 2;
  int64_t total_steps = 0;
  int64_t resumed_step = 0;
  uint64_t generation = 0;
  absl::Duration line_interval = absl::Seconds(10);
  absl::Duration sync_interval = absl::Seconds(5);
};

// Rank 0's files and console. If a file can't be written, that is logged once. Threads: one.
//
// Each record is written at once, because the records that a killed process loses in a buffer are
// the ones that explain the crash. Rank 0 writes for all ranks: with a file for each rank, readers
// would have to add up the figures.
class MetricsLog {
 public:
  // Errors: the errno of mkdir(2), open(2), write(2) or rename(2), with the path.
  static absl::StatusOr<std::unique_ptr<MetricsLog>> Open(const MetricsLogOptions& options,
                                                          absl::Time now);

  // Writes the record into the files.
  void Write(const MetricsRecord& record);

  // Call it after each step, to update the console. Params: record: the step's record, which was
  // written already; null: none.
  void ShowStep(int64_t step, absl::Duration elapsed, std::optional<absl::Duration> left,
                const MetricsRecord* record, Instant now);

  // Waits until what is written survives a crash of the machine.
  void Sync();

 private:
  MetricsLog(const MetricsLogOptions& options, std::optional<JsonLines> json_lines,
             std::optional<EventFile> events);

  std::optional<JsonLines> json_lines_;
  std::optional<EventFile> events_;
  bool json_lines_told_ = false;
  bool events_told_ = false;
  ConsoleFacts facts_;
  Console console_;
  std::optional<DiskSyncer> syncer_;  // ends before the files
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_METRICS_LOG_H_
