#ifndef DDPRUN_LAUNCHER_CORE_LINE_COLLAPSER_H_
#define DDPRUN_LAUNCHER_CORE_LINE_COLLAPSER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::launcher {

// Merges equal lines of several workers into one: "[default0-7]:loading the model". A line is held
// until every live stream has had it, for `hold` at most, and then shown with the local ranks that
// had it. The lines of one worker stay in order.
//
// Cost: one look-up in a hash map for each line; memory as Bounds says.
// Pure: time and lines in, lines out. Threads: one at a time.
class LineCollapser {
 public:
  struct Bounds {
    absl::Duration hold = absl::Milliseconds(200);
    // Most text that is held; beyond that the oldest lines are shown before their time.
    size_t bytes_max = size_t{256} << 10;
  };
  // One line to show, without its newline.
  struct Line {
    std::vector<uint32_t> local_ranks;  // the workers that had it, ascending
    std::string text;
  };

  explicit LineCollapser(Bounds bounds) : bounds_(bounds) {}

  // A worker's stream begins and ends. Lines don't wait for streams that have ended.
  void Begin(uint32_t local_rank);
  void End(uint32_t local_rank);
  // A line of a stream that has begun.
  void Add(Instant now, uint32_t local_rank, absl::string_view text);

  // The lines that are due, in order.
  std::vector<Line> Take(Instant now);
  // All lines that are held.
  std::vector<Line> TakeAll();
  // When lines are due next; infinite = none is held.
  Instant NextDeadline() const;

 private:
  struct Waiting {
    std::string text;
    std::vector<uint32_t> local_ranks;  // in the order of arrival
    Instant due;
  };
  bool AllSaid(const Waiting& line) const;
  Line TakeFront();

  const Bounds bounds_;
  // By local rank of a live stream, the number of its last line; 0 = none.
  std::map<uint32_t, uint64_t> last_said_;
  // Held lines in the order of arrival. The first one's number is `first_number_`; numbers rise by
  // one.
  std::deque<Waiting> waiting_;
  uint64_t first_number_ = 1;
  size_t waiting_bytes_ = 0;
  // Numbers of the held lines with this text, ascending.
  absl::flat_hash_map<std::string, std::deque<uint64_t>> numbers_;
};

// "0", "0-3", "0-3,7": for ranks in ascending order.
std::string RankRanges(const std::vector<uint32_t>& ranks);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_LINE_COLLAPSER_H_
