#ifndef DDPRUN_WORKER_METRICS_CONSOLE_H_
#define DDPRUN_WORKER_METRICS_CONSOLE_H_

#include <optional>

#include "absl/time/time.h"
#include "base/instant.h"
#include "worker/metrics/console_text.h"

namespace ddprun::worker {

enum class ConsoleKind { kNone, kLines, kProgressBar };

// Shows a run to people, through a descriptor that may be a terminal. Threads: one.
class Console {
 public:
  // Params: fd: stays open, owned by the caller. line_interval: the least time between two lines.
  Console(ConsoleKind kind, int fd, absl::Duration line_interval);
  // Moves the cursor to a new line.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Call it after each step. Redraws the bar at most ten times a second; prints a line for a new
  // record, if the last line is old enough, and for the last step.
  void Step(const ConsoleFacts& facts, bool new_record, Instant now);

 private:
  const ConsoleKind kind_;
  const int fd_;
  const absl::Duration line_interval_;
  std::optional<Instant> shown_;  // when something was shown last
  bool cursor_in_bar_ = false;
};

// kProgressBar for a terminal, else kLines.
ConsoleKind ConsoleKindFor(int fd);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_CONSOLE_H_
