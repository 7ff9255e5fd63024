#ifndef DDPRUN_BASE_CLOCK_H_
#define DDPRUN_BASE_CLOCK_H_

#include <ctime>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun {

// Now on CLOCK_MONOTONIC (clock_gettime(2)). Comparable between processes of one machine, not
// between machines. Threads: any. The pure cores never call this: they are given the time.
inline Instant MonotonicNow() {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return Instant::FromNanoseconds(static_cast<int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec);
}

// The processor time that this thread has used (CLOCK_THREAD_CPUTIME_ID): delays by other threads
// don't count. Threads: any.
inline absl::Duration ThreadTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace ddprun

#endif  // DDPRUN_BASE_CLOCK_H_
