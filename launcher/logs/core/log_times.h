#ifndef DDPRUN_LAUNCHER_LOGS_CORE_LOG_TIMES_H_
#define DDPRUN_LAUNCHER_LOGS_CORE_LOG_TIMES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/instant.h"

namespace ddprun::launcher {

// How large a file was when: so that what was written since a moment is found in bytes that carry
// no times. The longer ago, the coarser: two moments that are kept are at most 1/16 of their age
// apart, or a look's distance, so a month of a busy file takes some 10 KiB. Pure.
// Threads: one at a time.
//
// Sizes, because workers write to their files themselves (--redirects) and the files are
// torchrun's: nothing may be added to their lines, and an index beside each would be a file that
// nobody expects.
class LogTimes {
 public:
  // Requires: neither time nor size ever goes back; a look that says so is left out.
  void Note(Instant now, uint64_t size);
  // What was surely written before `at`, in bytes from the beginning: up to 1/16 of the time since
  // then, or a look's distance, may be missing. 0 = nothing is known of that time.
  uint64_t SizeBefore(Instant at) const;
  // Leaves out what is closer together than needed, by now. Note() does so now and then; who has
  // many files that don't grow any more says when.
  void Thin(Instant now);

  size_t mark_count() const { return marks_.size(); }

 private:
  struct Mark {
    Instant at;
    uint64_t size = 0;
  };
  std::vector<Mark> marks_;  // both rise
  size_t thin_at_ = 64;      // so many marks are looked through next
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_CORE_LOG_TIMES_H_
