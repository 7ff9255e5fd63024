#ifndef DDPRUN_WORKER_METRICS_EVENT_FILE_H_
#define DDPRUN_WORKER_METRICS_EVENT_FILE_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/metrics/append_file.h"
#include "worker/metrics/record.h"

namespace ddprun::worker {

// The CRC with Castagnoli's polynomial. Computed byte by byte, which is fast enough for records of
// some hundred bytes; Debian 12 has no library for it. Source: RFC 3720, appendix B.4.
uint32_t Crc32c(absl::string_view bytes);

// The masked form in TFRecord files: a CRC over bytes that contain plain CRCs would be weak.
// Source: tensorflow/core/lib/hash/crc32c.h, Mask().
uint32_t MaskedCrc32c(absl::string_view bytes);

// A file of scalars that TensorBoard reads. Source: tensorflow/core/util/events_writer.cc.
// Threads: one.
class EventFile {
 public:
  // Makes a new file in `directory`, with a name that sorts behind those of the files there,
  // because TensorBoard reads files in this order. From `first_step` on, the new file replaces the
  // events of the older ones. Errors: the errno of open(2) or write(2), with the path.
  static absl::StatusOr<EventFile> Create(const std::string& directory, int64_t first_step,
                                          absl::Time now);

  // Appends an event with a scalar for each value, in single precision. Errors: the errno of
  // write(2).
  absl::Status Append(const MetricsRecord& record);

  const AppendFile& file() const { return file_; }

 private:
  explicit EventFile(AppendFile file) : file_(std::move(file)) {}

  AppendFile file_;
};

// `data` as a TFRecord: its length, that length's CRC, the bytes, their CRC; little-endian.
// Source: tensorflow/core/lib/io/record_writer.cc.
std::string TfRecord(absl::string_view data);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_EVENT_FILE_H_
