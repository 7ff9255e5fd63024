#ifndef DDPRUN_LAUNCHER_OPTIONS_ARGUMENT_H_
#define DDPRUN_LAUNCHER_OPTIONS_ARGUMENT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The value of an option, and where it was given.
struct Argument {
  std::string text;    // the default's text if the option wasn't given
  std::string source;  // as typed: "--nnodes", or "PET_NNODES"; "" = not given

  bool given() const { return !source.empty(); }
  // Given, and not as an empty text (`--rdzv_endpoint ""`, `PET_RDZV_ENDPOINT=`).
  bool filled() const { return given() && !text.empty(); }
};

// The two kinds of errors of the command line, with torchrun's exit statuses.

// The arguments can't be parsed: unknown option, missing script, not a number. Exit status 2.
inline absl::Status UsageError(absl::string_view text) { return absl::InvalidArgumentError(text); }
// The arguments are valid, but not possible: no such file, MIN > MAX. Exit status 1.
inline absl::Status PlanError(absl::string_view text) {
  return absl::FailedPreconditionError(text);
}

inline int ExitStatusOf(const absl::Status& error) {
  return error.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}

// A command's options, or the text of --help.
template <typename Options>
struct OptionsOrHelp {
  Options options;
  std::string help;  // "" = the options are valid
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_ARGUMENT_H_
