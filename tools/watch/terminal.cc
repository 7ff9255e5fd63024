#include "tools/watch/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {
namespace {

constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";

volatile std::sig_atomic_t last_signal = 0;

void NoteSignal(int number) { last_signal = number; }

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};

TopColours WantedColours() {
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool none = (refused != nullptr && *refused != 0) ||
                    (terminal != nullptr && absl::string_view(terminal) == "dumb");
  return none ? TopColours::kNo : TopColours::kYes;
}

}  // namespace

void Terminal::HoldSignals() {
  sigset_t blocked;
  sigemptyset(&blocked);
  struct sigaction action = {};
  action.sa_handler = NoteSignal;
  for (const int number : kEndingSignals) {
    sigaddset(&blocked, number);
    sigaction(number, &action, nullptr);
  }
  sigaddset(&blocked, SIGWINCH);
  sigaction(SIGWINCH, &action, nullptr);
  sigprocmask(SIG_BLOCK, &blocked, nullptr);
}

absl::StatusOr<Terminal> Terminal::Open() {
  termios before = {};
  if (isatty(STDOUT_FILENO) == 0 || tcgetattr(STDIN_FILENO, &before) != 0) {
    return absl::FailedPreconditionError(
        "ddprun top needs a terminal; for a pipe or a file: ddprun status --watch 1");
  }
  termios raw = before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  std::fputs(kEnter, stdout);
  std::fflush(stdout);
  return Terminal(before);
}

Terminal::Terminal(Terminal&& other) noexcept
    : before_(std::exchange(other.before_, std::nullopt)) {}

Terminal::~Terminal() {
  if (!before_.has_value()) return;
  std::fputs(kLeave, stdout);
  std::fflush(stdout);
  tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
}

TopSize Terminal::Size() const {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {.columns = size.ws_col, .rows = size.ws_row};
}

void Terminal::Draw(const std::vector<TopLine>& lines) const {
  std::fputs(ScreenText(lines, WantedColours()).c_str(), stdout);
  std::fflush(stdout);
}

Terminal::Wake Terminal::Wait(absl::Duration time, char* key) const {
  last_signal = 0;
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const timespec timeout = absl::ToTimespec(time);
  sigset_t none;
  sigemptyset(&none);
  const int ready = ppoll(&input, 1, &timeout, &none);
  if (ready == 0) return Wake::kTime;
  if (ready < 0) return errno == EINTR && last_signal == SIGWINCH ? Wake::kResized : Wake::kEnd;
  return read(STDIN_FILENO, key, 1) == 1 ? Wake::kKey : Wake::kEnd;
}

}  // namespace ddprun::launcher
