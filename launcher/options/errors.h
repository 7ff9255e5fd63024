#ifndef DDPRUN_LAUNCHER_OPTIONS_ERRORS_H_
#define DDPRUN_LAUNCHER_OPTIONS_ERRORS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

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

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_ERRORS_H_
