#ifndef DDPRUN_LAUNCHER_OPTIONS_SHELL_LINE_H_
#define DDPRUN_LAUNCHER_OPTIONS_SHELL_LINE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// One word of a command as bash divides it, without what bash would make of it.
struct ShellToken {
  std::string raw;    // as written, quotes and all
  std::string plain;  // without quotes and backslashes
  // bash puts something else there: a variable, a command's output, a pattern.
  bool expands = false;
  // ; & | < > or a newline, or a comment: no word of the command that it stands beside.
  bool is_operator = false;
};

// Divides a line of bash at blanks outside of quotes and $(…).
// Errors: INVALID_ARGUMENT — a quote or a parenthesis has no end.    Pure; threads: any.
// Source: POSIX.1-2017, Shell Command Language, 2.2 and 2.3.
absl::StatusOr<std::vector<ShellToken>> SplitShellLine(absl::string_view line);

// A word as bash reads it back: plain where that is unmistakable, else in single quotes.
std::string ShellWord(const std::string& word);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_SHELL_LINE_H_
