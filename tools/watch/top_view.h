#ifndef DDPRUN_TOOLS_WATCH_TOP_VIEW_H_
#define DDPRUN_TOOLS_WATCH_TOP_VIEW_H_

#include <cstddef>
#include <string>
#include <vector>

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
// (rendezvous/wire/lag.h) of the job. Pure; threads: any.
std::vector<TopLine> TopLines(const rendezvous::v1::JobStatus& job, const std::string& target,
                              TopOrder order, TopSize size);

// kNo: bold instead of colors, for terminals without colors and NO_COLOR (https://no-color.org).
enum class TopColours { kYes, kNo };

// The control sequences that draw these lines from the upper left corner and clear the rest.
// Source: ECMA-48. Threads: any.
std::string ScreenText(const std::vector<TopLine>& lines, TopColours colours);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_TOP_VIEW_H_
