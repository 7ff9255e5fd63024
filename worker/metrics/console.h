#ifndef DDPRUN_WORKER_METRICS_CONSOLE_H_
#define DDPRUN_WORKER_METRICS_CONSOLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::worker {

// The figures of a run for the console.
struct ConsoleFacts {
  int64_t step = 0;
  int64_t total_steps = 0;  // 0 = unknown
  absl::Duration elapsed;
  std::optional<absl::Duration> left;
  // Names and values of the last record.
  std::vector<std::pair<std::string, double>> values;
};

// "step 3100/7375 (42%)  loss 0.1234  lr 0.0003  4012 samples/s  step 25.1 ms (data 0.3 ms)
// grad 1.2  memory 180 MiB  overlap 83%  1:02 gone, 1:25 left", in one line without its end.
std::string ConsoleLine(const ConsoleFacts& facts);

// " 42% [=====>      ] 3100/7375  1:02<1:25  loss 0.1234  4012 samples/s", at most `columns` long;
// what doesn't fit is left out from the right. ASCII only.
std::string ProgressBar(const ConsoleFacts& facts, size_t columns);

// "0:07", "12:30", "1:02:03", "2d 01:02:03"; whole seconds.
std::string ClockText(absl::Duration duration);

// "512 B", "180 MiB", "1.5 GiB".
std::string BytesText(double bytes);

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
