#ifndef DDPRUN_LAUNCHER_LOGS_CORE_LOG_TIMES_H_
#define DDPRUN_LAUNCHER_LOGS_CORE_LOG_TIMES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/instant.h"

namespace ddprun::launcher {

// The sizes of a file over time, by which the lines since a moment are found in a file without
// times. Older entries are coarser: two of them are at most 1/16 of their age apart, or as far as
// two looks, so a month of a busy file takes some 10 KiB. Pure. Threads: one at a time.
//
// Sizes are kept, because workers write to their files themselves (--redirects) and the files are
// torchrun's: nothing may be added to their lines, and an index beside each would be a file that
// nobody expects.
class LogTimes {
 public:
  // A call in which the time or the size goes back is ignored.
  void Note(Instant now, uint64_t size);
  // How many bytes were surely written before `at`. Bytes of the last 1/16 of the time since then,
  // or of the time between two looks, may be missing. 0 = nothing is known of that time.
  uint64_t SizeBefore(Instant at) const;
  // Drops entries that are closer together than needed. Note() does so now and then; call this for
  // files that don't grow any more.
  void Thin(Instant now);

  size_t mark_count() const { return marks_.size(); }

 private:
  struct Mark {
    Instant at;
    uint64_t size = 0;
  };
  std::vector<Mark> marks_;  // both rise
  size_t thin_at_ = 64;      // Note() calls Thin() when there are this many entries
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_CORE_LOG_TIMES_H_
