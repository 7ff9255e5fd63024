#ifndef DDPRUN_LAUNCHER_OPTIONS_VALUES_H_
#define DDPRUN_LAUNCHER_OPTIONS_VALUES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "launcher/options/argument.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {

// Parsers of option values. Each error is one line with the option (or variable), the value and
// what to give instead; usage or plan errors (argument.h), as by torchrun's exit status. Pure;
// threads: any.

// "<source> '<value>': <what is wrong>".
absl::Status BadValue(const Argument& argument, absl::string_view what);  // plan error
absl::Status BadWord(const Argument& argument, absl::string_view what);   // usage error

// Python's int(): blanks around, a sign, '_' between digits. Numbers beyond int64 are clamped.
// nullopt = not a number.
std::optional<int64_t> ReadInteger(absl::string_view text);
// 1/true/t/yes/y/on and 0/false/f/no/n/off in any case, and other integers as in C.
std::optional<bool> ReadBoolean(absl::string_view text);
// Seconds as a decimal number ("0.5", "1e2"), or a number with its unit: "150ms", "2m", "1h30m".
std::optional<absl::Duration> ReadDuration(absl::string_view text);
// Reads "5%" into `percent`, or "2GiB", "512MiB", "1048576" into `bytes`. Returns false for other
// texts, and for more than 100 % or 10^15 bytes.
bool ReadMemorySize(absl::string_view text, std::optional<uint64_t>* bytes,
                    std::optional<double>* percent);
// The inverse of ReadDuration, for finite durations: "0.15", "30", and whole hours as "2h".
std::string DurationText(absl::Duration duration);

// An integer within [min, max]. Errors: usage — not a number; plan — out of range.
absl::StatusOr<int64_t> ParseInteger(const Argument& argument, int64_t min, int64_t max);
// A duration from `min` to `max` (by default 7 days).
// Errors: usage — not a duration; plan — out of range.
absl::StatusOr<absl::Duration> ParseDuration(const Argument& argument, absl::Duration min,
                                             absl::Duration max = rendezvous::kTimeoutMax);

struct NodeRange {
  uint32_t min = 1;
  uint32_t max = 1;
};
// "N" or "MIN:MAX" with 0 < MIN <= MAX and MIN <= kNodesMax, which cuts a larger MAX off.
absl::StatusOr<NodeRange> ParseNodeRange(const Argument& argument);

// A host name or IP address. An IPv6 address may have brackets, which are removed.
absl::StatusOr<std::string> ParseHost(const Argument& argument);

struct Endpoint {
  std::string host;  // without brackets
  std::optional<uint16_t> port;
};
// "host", "host:port", "[v6]", "[v6]:port", split at the last ':' outside of brackets.
absl::StatusOr<Endpoint> ParseEndpoint(const Argument& argument);
// --status_page "PORT" (of 127.0.0.1) or "HOST:PORT" as "host:port"; "" stays "".
absl::StatusOr<std::string> ParseStatusPage(const Argument& argument);

// "key=value,key=value"; a later key wins.
absl::StatusOr<std::map<std::string, std::string>> ParseKeyValues(const Argument& argument);

// Local ranks or devices, "0,2,4-7", in this order. Errors: plan — not a number, or beyond
// kWorkersPerNodeMax.
absl::StatusOr<std::vector<uint32_t>> ParseRanks(const Argument& argument);

// torchrun's list of texts: separated by ','; ",," is a comma within a text. At least one item.
std::vector<std::string> SplitTexts(absl::string_view text);

// The chosen streams of each worker: bit 0 stdout, bit 1 stderr.
struct StreamChoice {
  uint32_t all = 0;                      // of ranks that aren't listed
  std::map<uint32_t, uint32_t> by_rank;  // local rank -> bits

  uint32_t Of(uint32_t local_rank) const;
};
// torchrun's grammar of --redirects and --tee: one digit 0 to 3 or "rank:digit,rank:digit". A rank
// may have several digits, be a range ("4-7"), or "*" for all that aren't listed.
absl::StatusOr<StreamChoice> ParseStreams(const Argument& argument);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_VALUES_H_
