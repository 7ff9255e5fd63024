#ifndef DDPRUN_LAUNCHER_PREFLIGHT_WORK_SAMPLE_H_
#define DDPRUN_LAUNCHER_PREFLIGHT_WORK_SAMPLE_H_

#include "absl/time/time.h"

namespace ddprun::launcher {

// CPU time of a fixed piece of work, about a millisecond: the least of a few samples. Of the
// thread, not of the clock on the wall: who else runs here at the moment doesn't count, a slower or
// throttled CPU does. Threads: any.
absl::Duration SampleWork();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PREFLIGHT_WORK_SAMPLE_H_
