#include "tests/fuzz/error_file_fuzz.h"

#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "base/check.h"
#include "launcher/os/error_file.h"

namespace ddprun::launcher {

bool FuzzErrorFile(absl::string_view bytes) {
  const ErrorFile file = ParseErrorFile("error.json", bytes);
  DDPRUN_CHECK(file.timestamp >= 0, "a time before 1970");
  const std::optional<std::string> copy = WithErrorCode(bytes, -11);
  if (!copy.has_value()) {
    DDPRUN_CHECK(absl::StartsWith(file.message, "error file 'error.json' is "), file.message);
  } else {
    const ErrorFile again = ParseErrorFile("error.json", *copy);
    DDPRUN_CHECK(again.timestamp == file.timestamp, "the copy has another time");
    DDPRUN_CHECK(WithErrorCode(*copy, -11) == copy, "the copy of the copy differs");
  }
  const ErrorFile own = ParseErrorFile("own", FormatErrorFile(file));
  DDPRUN_CHECK(own.timestamp == file.timestamp, "the own file has another time");
  return copy.has_value();
}

}  // namespace ddprun::launcher
