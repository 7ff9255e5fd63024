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

// When all nodes are probed, and when an answered probe was sent (R4). Pure.
//
//   resting ─Wake─► ticking ─Rest─► resting
class ProbeClock {
 public:
  // Params: life: of the service. Lives use different nonces, so an answer that arrives one life
  // late proves nothing.
  explicit ProbeClock(uint64_t life = 0) : log_((life << kNonceBits) + 1) {}

  // A node is to be probed from now on; ignored while ticking. Params, here and below: least:
  // nodes_min.
  void Wake(Instant now, absl::Duration lease, size_t least = 0);
  // No node is to be probed any more.
  void Rest();
  // Adds the probe of a tick that is due, and schedules the next one. The pace follows the number
  // of nodes with a stream, but at least `least`. It changes slowly: a lease that was renewed at
  // the former pace still holds four probes. Returns the nonce.
  uint64_t Tick(Instant now, absl::Duration lease, size_t nodes = 0, size_t least = 0);
  // Adds a probe of a single node between ticks. Returns the nonce.
  uint64_t Ask(Instant now) { return log_.Send(now); }

  // When the probe with this nonce was sent; nullopt = unknown or too old.
  std::optional<Instant> SentAt(uint64_t nonce) const { return log_.SentAt(nonce); }
  // The service stalled for `stall`; the sum of stalls since a probe was sent.
  void Forgive(absl::Duration stall) { log_.Forgive(stall); }
  absl::Duration ForgivenSince(uint64_t nonce, Instant now) const {
    return log_.ForgivenSince(nonce, now);
  }
  // The pace in force. Params: lease: of the job.
  ProbePace pace(absl::Duration lease, size_t least = 0) const {
    return pace_ ? *pace_ : ProbePace(lease, least);
  }
  bool ticks() const { return !due_.is_infinite(); }
  // When to call Tick; infinite while resting.
  Instant due() const { return due_; }

 private:
  static constexpr int kNonceBits = 40;  // of a life: 35,000 years of probes a second

  ProbeLog log_;
  Instant due_ = Instant::Infinite();  // at most pace_'s interval ahead, or infinite
  std::optional<ProbePace> pace_;      // since the first tick; empty while resting
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_PROBE_CLOCK_H_
