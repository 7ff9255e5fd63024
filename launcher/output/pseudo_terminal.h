#ifndef DDPRUN_LAUNCHER_OUTPUT_PSEUDO_TERMINAL_H_
#define DDPRUN_LAUNCHER_OUTPUT_PSEUDO_TERMINAL_H_

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ddprun::launcher {

// Makes a pseudo-terminal (pty(7)) for a program whose output is copied to the terminal `like`. It
// has the same size and doesn't process output, because `like` does. Returns the master as `first`
// and the program's end as `second`. It is no process's controlling terminal, so it sends no
// signals. Errors: of posix_openpt(3) and ioctl(2).
absl::StatusOr<FdPair> MakePseudoTerminal(int like);

// Gives a terminal the size of another one. Does nothing for a descriptor that isn't a terminal.
void CopyWindowSize(int from, int to);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OUTPUT_PSEUDO_TERMINAL_H_
