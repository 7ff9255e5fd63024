#ifndef DDPRUN_TOOLS_WATCH_TERMINAL_H_
#define DDPRUN_TOOLS_WATCH_TERMINAL_H_

#include <termios.h>

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/watch/top_view.h"

namespace ddprun::launcher {

// The whole screen of the terminal at stdin and stdout, until the destructor restores it: the
// terminal's alternate screen, and keys as they are typed. SIGINT, SIGTERM and SIGHUP end the view,
// too, and the terminal is restored. Source: ECMA-48 and xterm's alternate screen. Threads: one at
// a time; at most one in a process.
class Terminal {
 public:
  // Blocks signals except in Wait(), so that none is missed. To be called before the process has
  // other threads, which would receive them.
  static void HoldSignals();
  // Errors: FAILED_PRECONDITION — stdin or stdout isn't a terminal.
  static absl::StatusOr<Terminal> Open();
  Terminal(Terminal&& other) noexcept;
  Terminal& operator=(Terminal&&) = delete;
  ~Terminal();

  TopSize Size() const;
  // Shows these lines from the top, in colours unless NO_COLOR is set or the terminal is "dumb".
  void Draw(const std::vector<TopLine>& lines) const;

  enum class Wake { kKey, kTime, kResized, kEnd };
  // Waits for a key (in `key`), for `time` to pass, for a new size, or for the end.
  Wake Wait(absl::Duration time, char* key) const;

 private:
  explicit Terminal(const termios& before) : before_(before) {}
  std::optional<termios> before_;  // empty: moved from
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_TERMINAL_H_
