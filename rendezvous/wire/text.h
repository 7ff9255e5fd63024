#ifndef DDPRUN_RENDEZVOUS_WIRE_TEXT_H_
#define DDPRUN_RENDEZVOUS_WIRE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

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

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_TEXT_H_
