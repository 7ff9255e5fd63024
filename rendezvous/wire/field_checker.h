#ifndef DDPRUN_RENDEZVOUS_WIRE_FIELD_CHECKER_H_
#define DDPRUN_RENDEZVOUS_WIRE_FIELD_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

// How much of a peer's release an error message quotes.
inline constexpr size_t kReleaseQuotedMax = 32;

// `text` as valid UTF-8 of at most `bytes_max` bytes. Each byte that isn't UTF-8 (The Unicode
// Standard 15, table 3-7) becomes U+FFFD: protobuf refuses a message with such a string, and a
// worker's last output may have any bytes. A longer text is cut at a character border and ends in
// "…". Requires: bytes_max >= 3. Threads: any.
std::string CutText(absl::string_view text, size_t bytes_max);
// CutText() that drops the beginning; for the last lines of an output.
std::string CutTextFront(absl::string_view text, size_t bytes_max);
// CutText() without a bound.
std::string ValidUtf8(absl::string_view text);

// 2,284 years: nothing of a job gets there, and no sum of such times overflows.
inline constexpr uint64_t kTimeMaxUs = uint64_t{1} << 56;

// 73 years: no job gets there, and the sum of two such times and a clock's time doesn't overflow.
inline constexpr int64_t kAgeMaxNs = int64_t{1} << 61;

// Workers of one job.
inline constexpr uint32_t kWorkersMax = kNodesMax * kWorkersPerNodeMax;

// Reads the fields of one message from the wire and keeps the first error, so that a conversion is
// a list of its fields with their ranges.
//
// Each method returns the value (or its default); after an error the value means nothing. `field`
// is its path in the proto, for the error: "join.node.worker_count". Threads: any, one at a time.
class FieldChecker {
 public:
  // A name: 1 to kNameBytesMax bytes without control characters.
  std::string Name(absl::string_view field, const std::string& value);
  // A name, or "".
  std::string OptionalName(absl::string_view field, const std::string& value);
  // A text for people with any characters, because a worker may print anything.
  std::string Text(absl::string_view field, const std::string& value,
                   size_t bytes_max = kTextBytesMax);
  // A number within [least, most].
  uint32_t Number(absl::string_view field, uint32_t value, uint32_t least, uint32_t most);
  // A number that is never 0.
  uint64_t NonZero(absl::string_view field, uint64_t value);
  // A step that a worker may mark.
  uint64_t Step(absl::string_view field, uint64_t step);
  // A process id, or 0.
  uint32_t ProcessId(absl::string_view field, uint32_t value);
  // A TCP port, or 0.
  uint32_t Port(absl::string_view field, uint32_t value);
  // A time of [least, kTimeoutMax]; 0 stands for the default.
  absl::Duration Milliseconds(absl::string_view field, uint32_t ms, absl::Duration default_value,
                              absl::Duration least = absl::Milliseconds(1));
  // How long something has lasted, up to kTimeMaxUs.
  absl::Duration Microseconds(absl::string_view field, uint64_t us);
  // An age or a duration to come, up to kAgeMaxNs; never negative.
  absl::Duration Nanoseconds(absl::string_view field, int64_t ns);
  // The name of a Rule.
  std::string Rule(absl::string_view field, const std::string& name);
  // A number of entries.
  void Count(absl::string_view field, int count, size_t most);
  // Refuses when `has` is false.
  void Present(absl::string_view field, bool has);
  // Refuses when `ok` is false: "<field>: <what is wrong>".
  void Require(bool ok, absl::string_view field, absl::string_view wrong);

  // OK, or the first error: INVALID_ARGUMENT; RESOURCE_EXHAUSTED for a bound of core/bounds.h.
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

 private:
  void Refuse(absl::StatusCode code, absl::string_view field, absl::string_view wrong);

  absl::Status status_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_FIELD_CHECKER_H_
