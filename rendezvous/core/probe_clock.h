#ifndef DDPRUN_RENDEZVOUS_CORE_PROBE_CLOCK_H_
#define DDPRUN_RENDEZVOUS_CORE_PROBE_CLOCK_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/lease_table.h"

namespace ddprun::rendezvous {

// When all nodes are probed, and when a probe that is answered was sent (R4). Pure.
//
//   resting ─Wake─► ticking ─Rest─► resting
class ProbeClock {
 public:
  // Params: life: of the service. No nonce of one life is used in another: an answer that is late
  // by a life proves nothing.
  explicit ProbeClock(uint64_t life = 0) : log_((life << kNonceBits) + 1) {}

  // Somebody is to be probed from now on. Nothing changes when it ticks already.
  void Wake(Instant now, absl::Duration lease);
  // Nobody is.
  void Rest() { due_ = Instant::Infinite(); }
  // Notes the probe of a tick, which is due, and when the next one is. Returns its nonce.
  uint64_t Tick(Instant now, absl::Duration lease);
  // Notes a probe of a single node between ticks. Returns its nonce.
  uint64_t Ask(Instant now) { return log_.Send(now); }

  // When the probe with that nonce was sent; empty when it is unknown or too old.
  std::optional<Instant> SentAt(uint64_t nonce) const { return log_.SentAt(nonce); }
  bool ticks() const { return !due_.is_infinite(); }
  // When Tick is wanted; infinite while resting.
  Instant due() const { return due_; }

 private:
  static constexpr int kNonceBits = 40;  // of a life: 35,000 years of probes a second

  ProbeLog log_;
  Instant due_ = Instant::Infinite();  // at most ProbeInterval ahead, or infinite
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_PROBE_CLOCK_H_
