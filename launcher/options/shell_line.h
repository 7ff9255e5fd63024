#ifndef DDPRUN_LAUNCHER_OPTIONS_SHELL_LINE_H_
#define DDPRUN_LAUNCHER_OPTIONS_SHELL_LINE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// One word of a command as bash splits it, without expansions.
struct ShellToken {
  std::string raw;    // as written, quotes and all
  std::string plain;  // without quotes and backslashes
  // bash would replace it: a variable, a command's output, a pattern.
  bool expands = false;
  // ; & | < > or a newline, or a comment: not a word of the command.
  bool is_operator = false;
};

// Splits a line of bash at blanks outside of quotes and $(…).
// Errors: INVALID_ARGUMENT — a quote or a parenthesis isn't closed.    Pure; threads: any.
// Source: POSIX.1-2017, Shell Command Language, 2.2 and 2.3.
absl::StatusOr<std::vector<ShellToken>> SplitShellLine(absl::string_view line);

// A word quoted for bash: unchanged if that is safe, else in single quotes.
std::string ShellWord(const std::string& word);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_SHELL_LINE_H_
