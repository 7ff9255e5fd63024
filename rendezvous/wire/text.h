#ifndef DDPRUN_RENDEZVOUS_WIRE_TEXT_H_
#define DDPRUN_RENDEZVOUS_WIRE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// How much of a peer's release an error message quotes.
inline constexpr size_t kReleaseQuotedMax = 32;

// `text` as valid UTF-8 of at most `bytes_max` bytes. Bytes that are no UTF-8 (The Unicode Standard
// 15, table 3-7) become U+FFFD, one for each byte: protobuf refuses a message with such a string,
// and a worker's last words may hold anything. What is too long is cut at a character border and
// ends in "…". Requires: bytes_max >= 3. Threads: any.
std::string CutText(absl::string_view text, size_t bytes_max);
// The same, but it is the beginning that is cut off: for the last lines of something.
std::string CutTextFront(absl::string_view text, size_t bytes_max);
// The same without a bound.
std::string ValidUtf8(absl::string_view text);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_TEXT_H_
