#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_PROBE_CLOCK_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_PROBE_CLOCK_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/members/lease_table.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

// When all nodes are probed, and when a probe that is answered was sent (R4). Pure.
//
//   resting ─Wake─► ticking ─Rest─► resting
class ProbeClock {
 public:
  // Params: life: of the service. No nonce of one life is used in another: an answer that is late
  // by a life proves nothing.
  explicit ProbeClock(uint64_t life = 0) : log_((life << kNonceBits) + 1) {}

  // Somebody is to be probed from now on. Nothing changes when it ticks already. Params, here and
  // below: least: how many nodes the job has at least, once all that it needs are here.
  void Wake(Instant now, absl::Duration lease, size_t least = 0);
  // Nobody is.
  void Rest();
  // Notes the probe of a tick, which is due, and when the next one is. The pace follows the number
  // of nodes that have a stream, or of the least, but slowly: a lease that was renewed at the
  // former pace still holds four probes. Returns its nonce.
  uint64_t Tick(Instant now, absl::Duration lease, size_t nodes = 0, size_t least = 0);
  // Notes a probe of a single node between ticks. Returns its nonce.
  uint64_t Ask(Instant now) { return log_.Send(now); }

  // When the probe with that nonce was sent; empty when it is unknown or too old.
  std::optional<Instant> SentAt(uint64_t nonce) const { return log_.SentAt(nonce); }
  // The service was held up for so long; and how much of that was since the probe was sent.
  void Forgive(absl::Duration stall) { log_.Forgive(stall); }
  absl::Duration ForgivenSince(uint64_t nonce, Instant now) const {
    return log_.ForgivenSince(nonce, now);
  }
  // The pace in force. Params: lease: of the job.
  ProbePace pace(absl::Duration lease, size_t least = 0) const {
    return pace_ ? *pace_ : ProbePace(lease, least);
  }
  bool ticks() const { return !due_.is_infinite(); }
  // When Tick is wanted; infinite while resting.
  Instant due() const { return due_; }

 private:
  static constexpr int kNonceBits = 40;  // of a life: 35,000 years of probes a second

  ProbeLog log_;
  Instant due_ = Instant::Infinite();  // at most pace_'s interval ahead, or infinite
  std::optional<ProbePace> pace_;      // since the first tick; empty while resting
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_PROBE_CLOCK_H_
