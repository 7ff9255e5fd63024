#ifndef DDPRUN_LAUNCHER_KEEPER_EXEC_CHILD_H_
#define DDPRUN_LAUNCHER_KEEPER_EXEC_CHILD_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"

namespace ddprun::launcher {

// `inherited` ("NAME=value" each) with `overrides` in place of or behind them and without the names
// in `unset`. A string without '=' passes unchanged.
std::vector<std::string> ComposeEnvironment(const std::vector<std::string>& inherited,
                                            const std::vector<std::string>& overrides,
                                            const std::vector<std::string>& unset);

// The paths at which execvp(3) would look for `program` with the PATH of `environment`.
std::vector<std::string> ExecCandidates(const std::string& program,
                                        const std::vector<std::string>& environment);

// The step between fork(2) and a running program at which a child failed.
struct StartError {
  enum class Stage : int { kFork, kParent, kCpus, kStdout, kStderr, kExec };
  Stage stage = Stage::kFork;
  int error_number = 0;
};
const char* StageName(StartError::Stage stage);

struct ExecChildOptions {
  std::vector<std::string> argv;         // not empty
  std::vector<std::string> environment;  // complete
  int stdout_fd = -1;                    // -1 = ours; else 3 or more
  int stderr_fd = -1;
  std::vector<uint32_t> cpus;  // that it is bound to (sched_setaffinity(2)); empty = ours
  int cgroup_fd = -1;          // folder of a cgroup2 to start it in; -1, or what refuses it: ours
  int inherited_fd = -1;       // that the program gets beside 0-2, under the same number; -1 = none
};

// A child on its way to exec(2).
struct ExecChild {
  pid_t pid = 0;
  Fd report;  // for ReadStartReport(); readable when exec(2) has succeeded or failed
};

// Starts a program as a child in a session of its own, which the kernel kills when we die
// (PR_SET_PDEATHSIG; it follows the calling thread, which must live as long as the process). It
// gets descriptors 0-2 and inherited_fd, an empty signal mask, and the dispositions that exec(2)
// leaves of ours. Doesn't wait for the exec, which may take long on a network file system.
//
// A file without a known format is an error (ENOEXEC), as in torchrun, and not given to /bin/sh as
// execvp(3) does. No pidfd: the pid of a child that only we reap can't be given away.
// Errors: of pipe2(2) and fork(2), as StartError. Requires: one thread.
struct ExecChildResult {
  ExecChild child;
  std::optional<StartError> error;
};
ExecChildResult StartExecChild(const ExecChildOptions& options);

// The state of the child's start.
struct StartReport {
  bool over = false;                // false = exec(2) hasn't happened so far
  std::optional<StartError> error;  // nullopt = exec succeeded, or the child was killed before
};
StartReport ReadStartReport(int report);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_EXEC_CHILD_H_
