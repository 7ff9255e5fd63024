#include "base/error_line.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

using Lines = std::vector<absl::string_view>;

// What torch.distributed's excepthook puts before each line of a traceback, once there is a process
// group: "[rank1]: ".
absl::string_view WithoutRank(absl::string_view line) {
  absl::string_view rest = line;
  if (!absl::ConsumePrefix(&rest, "[rank")) return line;
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  rest.remove_prefix(digits);
  if (digits == 0 || !absl::ConsumePrefix(&rest, "]:")) return line;
  absl::ConsumePrefix(&rest, " ");
  return rest;
}

// "ValueError: bad", "torch.cuda.OutOfMemoryError: …", "KeyboardInterrupt": a dotted name that ends
// like Python's own exceptions, alone or before a colon. SyntaxError has no traceback above it.
bool IsException(absl::string_view line) {
  const auto end = std::find_if_not(line.begin(), line.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  });
  const absl::string_view name(line.data(), static_cast<size_t>(end - line.begin()));
  if (end != line.end() && *end != ':') return false;
  return absl::EndsWith(name, "Error") || absl::EndsWith(name, "Exception") ||
         absl::EndsWith(name, "Interrupt");
}

// Python prints tracebacks of exceptions that end nothing, as those in destructors while the
// interpreter ends: "Exception ignored in: <function …>" stands above them.
bool EndsNothing(const Lines& lines, size_t traceback) {
  return traceback > 0 && absl::StartsWith(lines[traceback - 1], "Exception ignored in");
}

// The exception below the traceback at `traceback`: the first line that isn't indented.
absl::string_view BelowTraceback(const Lines& lines, size_t traceback) {
  for (size_t i = traceback + 1; i < lines.size(); ++i) {
    if (!lines[i].empty() && lines[i].front() != ' ' && lines[i].front() != '\t') return lines[i];
  }
  return "";
}

// The last line for which `fits`; "" = none.
template <typename Fits>
absl::string_view Last(const Lines& lines, Fits fits) {
  const auto found = std::find_if(lines.rbegin(), lines.rend(), fits);
  return found == lines.rend() ? "" : *found;
}

bool IsOfAnInterpreter(absl::string_view line) {
  for (const absl::string_view begin : {"error: ", "Error: ", "ERROR: ", "fatal: "}) {
    if (absl::StartsWith(line, begin)) return true;
  }
  for (const absl::string_view sign :
       {": No module named ", ": can't open file ", ": can't find '__main__' module",
        ": Error while finding module specification for ", ": error: ", ": command not found",
        ": error while loading shared libraries: ", ": cannot execute", ": Permission denied"}) {
    if (absl::StrContains(line, sign)) return true;
  }
  return false;
}

}  // namespace

std::string ErrorLine(absl::string_view last_words) {
  Lines lines = absl::StrSplit(last_words, absl::ByAnyChar("\r\n"));
  for (absl::string_view& line : lines) line = WithoutRank(line);
  absl::string_view found;
  for (size_t i = lines.size(); i-- > 0 && found.empty();) {
    if (absl::StartsWith(lines[i], "Traceback (most recent call last)") && !EndsNothing(lines, i)) {
      found = BelowTraceback(lines, i);
    }
  }
  if (found.empty()) found = Last(lines, IsException);
  if (found.empty()) {
    found = Last(lines, [](absl::string_view line) {
      return absl::StartsWith(absl::StripAsciiWhitespace(line), "what():");
    });
  }
  if (found.empty()) found = Last(lines, IsOfAnInterpreter);
  return std::string(absl::StripAsciiWhitespace(found));
}

}  // namespace ddprun
