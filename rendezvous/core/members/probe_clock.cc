#include "rendezvous/core/members/probe_clock.h"

#include <algorithm>

#include "base/check.h"

namespace ddprun::rendezvous {

void ProbeClock::Wake(Instant now, absl::Duration lease, size_t least) {
  if (!ticks()) due_ = now + pace(lease, least).interval;
}

void ProbeClock::Rest() {
  due_ = Instant::Infinite();
  pace_.reset();
}

uint64_t ProbeClock::Tick(Instant now, absl::Duration lease, size_t nodes, size_t least) {
  DDPRUN_CHECK(now >= due_, "a probe before its time");
  const absl::Duration longest = pace(lease, least).lease / 4;
  ProbePace next = ProbePace(lease, std::max(nodes, least));
  if (next.interval > longest) {
    next.interval = longest;
    next.lease = std::max(lease, kProbesInLease * longest);
  }
  pace_ = next;
  due_ = now + next.interval;
  return log_.Send(now);
}

}  // namespace ddprun::rendezvous
