#ifndef DDPRUN_LAUNCHER_OPTIONS_ERRORS_H_
#define DDPRUN_LAUNCHER_OPTIONS_ERRORS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The command line knows two kinds of errors, with torchrun's exit statuses.

// The words can't be understood: unknown option, missing script, no number. Exit status 2.
inline absl::Status UsageError(absl::string_view text) { return absl::InvalidArgumentError(text); }
// The words are understood, but can't be done: no such file, MIN > MAX. Exit status 1.
inline absl::Status PlanError(absl::string_view text) {
  return absl::FailedPreconditionError(text);
}

inline int ExitStatusOf(const absl::Status& error) {
  return error.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OPTIONS_ERRORS_H_
