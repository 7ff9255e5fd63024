#ifndef DDPRUN_WORKER_METRICS_JSON_LINES_H_
#define DDPRUN_WORKER_METRICS_JSON_LINES_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/metrics/append_file.h"
#include "worker/metrics/record.h"

namespace ddprun::worker {

// A file with one JSON object a line for each record. Threads: one.
class JsonLines {
 public:
  // Opens `path` for records after `resumed_step`. Removes the lines of later steps, which an
  // earlier start wrote and which are done once more, and an incomplete line at the end. With
  // resumed_step 0 another run may have written the file: it is renamed to the first free one of
  // metrics.1.jsonl, metrics.2.jsonl, … (for metrics.jsonl).
  // Errors: the errno of open(2), write(2) or rename(2), with the path.
  static absl::StatusOr<JsonLines> Open(const std::string& path, int64_t resumed_step,
                                        uint64_t generation);

  // Errors: the errno of write(2), with the path.
  absl::Status Append(const MetricsRecord& record);

  const AppendFile& file() const { return file_; }

 private:
  JsonLines(AppendFile file, uint64_t generation)
      : file_(std::move(file)), generation_(generation) {}

  AppendFile file_;
  uint64_t generation_;
};

// {"step":10,"time":1763800000.5,"generation":1,"loss":0.25}, ended by a newline. Times in seconds
// since 1970. NaN and infinity, for which JSON has no word, are null.
std::string JsonLine(const MetricsRecord& record, uint64_t generation);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_JSON_LINES_H_
