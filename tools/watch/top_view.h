#ifndef DDPRUN_TOOLS_WATCH_TOP_VIEW_H_
#define DDPRUN_TOOLS_WATCH_TOP_VIEW_H_

#include <termios.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::launcher {

// The order of the rows of `ddprun top`: least rank first, or the worker that is furthest behind,
// the slowest, or the longest silent first.
enum class TopOrder { kRank, kStep, kRate, kSilent };

// The rows and columns of a terminal; each at least 1.
struct TopSize {
  size_t columns = 80;
  size_t rows = 24;
};

// The kind of a line, which decides its style.
enum class TopTone {
  kPlain,
  kHeading,
  kTitle,    // of the table
  kFaint,    // unchanging text
  kWarning,  // behind, or slow
  kBad,      // silent, lost
};

struct TopLine {
  std::string text;  // without control characters
  TopTone tone = TopTone::kPlain;

  bool operator==(const TopLine&) const = default;
};

// The screen of `ddprun top`: the job, the slowest rank, and a row for each rank and for each node
// without ranks. At most `size.rows` lines of `size.columns` characters; a narrow terminal has
// fewer columns, but always the ranks, their states and steps. Requires: NoteLag
// (rendezvous/wire/training.h) of the job. Pure; threads: any.
std::vector<TopLine> TopLines(const rendezvous::v1::JobStatus& job, const std::string& target,
                              TopOrder order, TopSize size);

// kNo: bold instead of colors, for terminals without colors and NO_COLOR (https://no-color.org).
enum class TopColours { kYes, kNo };

// The control sequences that draw these lines from the upper left corner and clear the rest.
// Source: ECMA-48. Threads: any.
std::string ScreenText(const std::vector<TopLine>& lines, TopColours colours);

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

#endif  // DDPRUN_TOOLS_WATCH_TOP_VIEW_H_
