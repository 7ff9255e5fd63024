#ifndef DDPRUN_TOOLS_WATCH_TIME_TEXT_H_
#define DDPRUN_TOOLS_WATCH_TIME_TEXT_H_

#include <cstdint>
#include <string>

#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::launcher {

// "850 ms", "12.3 s", "4 min 5 s", "3 h 12 min", "2 d 4 h".
std::string TimeText(uint64_t ms);

// How long the job has been in its phase, as far as a status shows: "running for 1 h 2 min", where
// the time is the job's age, and "closing for 3.0 s (the job is 13 min 2 s old)".
std::string PhaseText(const rendezvous::v1::JobStatus& job);

// "restarts 1 of 3"; "restarts 1" if more were made than the limit, because some restarts don't
// count.
std::string RestartsText(const rendezvous::v1::JobStatus& job);

// "7", or "7 to 9".
std::string RangeText(uint64_t first, uint64_t last);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_TIME_TEXT_H_
