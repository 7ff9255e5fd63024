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

// The line of TopLines that stands out: the titles of its table.
inline constexpr size_t kTopTitleLine = 5;

// The screen of `ddprun top`: the job, who is slow, and a row for each rank, and for each node that
// has none. At most `size.rows` lines of `size.columns` characters, without control characters.
// Pure; threads: any.
std::vector<std::string> TopLines(const rendezvous::v1::JobStatus& job, const std::string& target,
                                  TopOrder order, TopSize size);

// These lines as a terminal is told them, from its upper left corner; `title` stands out, what was
// below them goes. Source: ECMA-48. Threads: any.
std::string ScreenText(const std::vector<std::string>& lines, size_t title);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WATCH_TOP_VIEW_H_
