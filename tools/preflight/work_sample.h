#ifndef DDPRUN_TOOLS_PREFLIGHT_WORK_SAMPLE_H_
#define DDPRUN_TOOLS_PREFLIGHT_WORK_SAMPLE_H_

#include "absl/time/time.h"

namespace ddprun::launcher {

// CPU time of a fixed piece of work, about a millisecond: the least of a few samples. The thread's
// CPU time, not wall time: other processes don't count, a slower or throttled CPU does. Threads:
// any.
absl::Duration SampleWork();

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_WORK_SAMPLE_H_
