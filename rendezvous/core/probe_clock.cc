#include "rendezvous/core/probe_clock.h"

#include "base/check.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

void ProbeClock::Wake(Instant now, absl::Duration lease) {
  if (!ticks()) due_ = now + ProbeInterval(lease);
}

uint64_t ProbeClock::Tick(Instant now, absl::Duration lease) {
  DDPRUN_CHECK(now >= due_, "a probe before its time");
  due_ = now + ProbeInterval(lease);
  return log_.Send(now);
}

}  // namespace ddprun::rendezvous
