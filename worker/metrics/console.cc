#include "worker/metrics/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/fd.h"

namespace ddprun::worker {
namespace {

constexpr absl::Duration kRedrawInterval = absl::Milliseconds(100);
constexpr size_t kUsualColumns = 80;
constexpr const char* kEraseRestOfLine = "\x1b[K";  // ECMA-48, EL

size_t TerminalColumns(int fd) {
  winsize size = {};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualColumns;
  return size.ws_col;
}

// A console that is gone doesn't end training.
void Print(int fd, const std::string& text) { WriteAll(fd, text).IgnoreError(); }

}  // namespace

Console::Console(ConsoleKind kind, int fd, absl::Duration line_interval)
    : kind_(kind), fd_(fd), line_interval_(line_interval) {}

Console::~Console() {
  if (cursor_in_bar_) Print(fd_, "\n");
}

void Console::Step(const ConsoleFacts& facts, bool new_record, Instant now) {
  const bool bar = kind_ == ConsoleKind::kProgressBar;
  if (kind_ == ConsoleKind::kNone || (!bar && !new_record)) return;
  const bool last = facts.total_steps > 0 && facts.step >= facts.total_steps;
  const absl::Duration interval = bar ? kRedrawInterval : line_interval_;
  if (!last && shown_.has_value() && now - *shown_ < interval) return;
  shown_ = now;
  if (!bar) return Print(fd_, ConsoleLine(facts) + "\n");
  // A terminal wraps what reaches its last column.
  const std::string text = ProgressBar(facts, TerminalColumns(fd_) - 1);
  Print(fd_, absl::StrCat("\r", text, kEraseRestOfLine, last ? "\n" : ""));
  cursor_in_bar_ = !last;
}

ConsoleKind ConsoleKindFor(int fd) {
  return isatty(fd) == 1 ? ConsoleKind::kProgressBar : ConsoleKind::kLines;
}

}  // namespace ddprun::worker
