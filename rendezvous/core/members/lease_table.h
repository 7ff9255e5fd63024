#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_LEASE_TABLE_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_LEASE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

// Keeps when each probe was sent, because a renewal counts from then (R4). All nodes get the probe
// of a tick with the same nonce. Bound: the last kProbesOutstandingMax.
class ProbeLog {
 public:
  // Params: first: the first nonce, > 0.
  explicit ProbeLog(uint64_t first = 1) : first_nonce_(first) {}
  // Adds a probe that is sent now. Returns its nonce, which is never 0 and never used again.
  uint64_t Send(Instant now);
  // When the probe with this nonce was sent; nullopt = unknown or too old.
  std::optional<Instant> SentAt(uint64_t nonce) const;
  // The service stalled for `stall`, which doesn't count as silence of a node (R4).
  void Forgive(absl::Duration stall) { forgiven_ += stall; }
  // The sum of stalls between the sending of this probe and now. Requires: SentAt(nonce) has a
  // value.
  absl::Duration ForgivenSince(uint64_t nonce, Instant now) const;

 private:
  struct Sent {
    Instant at;
    absl::Duration forgiven;  // sum of the stalls before
  };

  uint64_t first_nonce_;  // of sent_.front(); > 0
  std::deque<Sent> sent_;
  absl::Duration forgiven_ = absl::ZeroDuration();  // ever
};

// A deadline for each node, ordered by time, then by node. Bound: O(log n) a change.
class DeadlineQueue {
 public:
  // Replaces the node's deadline; infinite = it has none.
  void Set(uint64_t node, Instant at);
  // The earliest deadline; infinite = there is none.
  Instant Earliest() const;
  // Removes and returns a node with a deadline at or before `now`; nullopt = there is none.
  std::optional<uint64_t> PopDue(Instant now);
  // The node's deadline; infinite = it has none.
  Instant At(uint64_t node) const;
  size_t size() const { return queue_.size(); }

 private:
  absl::btree_set<std::pair<Instant, uint64_t>> queue_;
  absl::flat_hash_map<uint64_t, Instant> at_;
};

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

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_LEASE_TABLE_H_
