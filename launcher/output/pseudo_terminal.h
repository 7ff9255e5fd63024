#ifndef DDPRUN_LAUNCHER_OUTPUT_PSEUDO_TERMINAL_H_
#define DDPRUN_LAUNCHER_OUTPUT_PSEUDO_TERMINAL_H_

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ddprun::launcher {

// A terminal (pty(7)) for a program whose output is passed on to the terminal `like`: as large as
// that, and leaving every byte as it is, because that one does what terminals do to them.
// Gives who passes it on `first`, the program `second`. Errors: of posix_openpt(3) and ioctl(2).
// Nobody's controlling terminal: it sends no signals.
absl::StatusOr<FdPair> MakePseudoTerminal(int like);

// Makes a terminal as large as another one. What is none is left alone.
void CopyWindowSize(int from, int to);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OUTPUT_PSEUDO_TERMINAL_H_
