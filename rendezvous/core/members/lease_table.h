#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_LEASE_TABLE_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_LEASE_TABLE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/instant.h"

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

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_LEASE_TABLE_H_
