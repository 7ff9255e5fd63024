#include "launcher/output/pseudo_terminal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

#include <cerrno>

#include "base/errno_status.h"

namespace ddprun::launcher {

absl::StatusOr<FdPair> MakePseudoTerminal(int like) {
  FdPair pair;
  pair.first.Reset(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!pair.first.valid() || unlockpt(pair.first.get()) != 0) {
    return ErrnoStatus(errno, "open /dev/ptmx");
  }
  // Not by its name: it may be of another mount namespace.
  pair.second.Reset(ioctl(pair.first.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios settings{};
  if (!pair.second.valid() || tcgetattr(pair.second.get(), &settings) != 0) {
    return ErrnoStatus(errno, "open a pseudo-terminal");
  }
  cfmakeraw(&settings);
  if (tcsetattr(pair.second.get(), TCSANOW, &settings) != 0) {
    return ErrnoStatus(errno, "set up a pseudo-terminal");
  }
  CopyWindowSize(like, pair.first.get());
  return pair;
}

void CopyWindowSize(int from, int to) {
  winsize size{};
  if (ioctl(from, TIOCGWINSZ, &size) == 0) ioctl(to, TIOCSWINSZ, &size);
}

}  // namespace ddprun::launcher
