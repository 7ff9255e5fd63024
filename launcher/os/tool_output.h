#ifndef DDPRUN_LAUNCHER_OS_TOOL_OUTPUT_H_
#define DDPRUN_LAUNCHER_OS_TOOL_OUTPUT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ddprun::launcher {

// Runs a program without a shell, input and error output on /dev/null, and waits for its end.
// Params: argv — argv[0] is a path, or a name in PATH. limit — after which the program and its
// session are killed. Returns: the first 64 KiB of its standard output. Errors: errno — it can't be
// started; DEADLINE_EXCEEDED; ABORTED — its exit status isn't 0. Threads: any.
absl::StatusOr<std::string> ToolOutput(const std::vector<std::string>& argv, absl::Duration limit);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_TOOL_OUTPUT_H_
