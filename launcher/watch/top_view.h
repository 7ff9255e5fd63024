#ifndef DDPRUN_LAUNCHER_WATCH_TOP_VIEW_H_
#define DDPRUN_LAUNCHER_WATCH_TOP_VIEW_H_

#include <cstddef>
#include <string>
#include <vector>

#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::launcher {

// What the rows of `ddprun top` are sorted by: the least rank first, who is furthest behind,
// slowest or silent for longest first.
enum class TopOrder { kRank, kStep, kRate, kSilent };

// What is left to rows and columns of a terminal. Both at least 1.
struct TopSize {
  size_t columns = 80;
  size_t rows = 24;
};

// What a line is, which says how it looks.
enum class TopTone {
  kPlain,
  kHeading,
  kTitle,    // of the table
  kFaint,    // what is always the same
  kWarning,  // behind, or slow
  kBad,      // silent, lost
};

struct TopLine {
  std::string text;  // without control characters
  TopTone tone = TopTone::kPlain;

  bool operator==(const TopLine&) const = default;
};

// The screen of `ddprun top`: the job, who is slowest, and a row for each rank, and for each node
// that has none. At most `size.rows` lines of `size.columns` characters; a narrow terminal has
// fewer columns, but always the ranks, their states and steps. Requires: NoteLag
// (rendezvous/wire/lag.h) of the job. Pure; threads: any.
std::vector<TopLine> TopLines(const rendezvous::v1::JobStatus& job, const std::string& target,
                              TopOrder order, TopSize size);

// kNo: what would be coloured is bold, for terminals and people without (https://no-color.org).
enum class TopColours { kYes, kNo };

// These lines as a terminal is told them, from its upper left corner; what was below them goes.
// Source: ECMA-48. Threads: any.
std::string ScreenText(const std::vector<TopLine>& lines, TopColours colours);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WATCH_TOP_VIEW_H_
