#ifndef DDPRUN_RENDEZVOUS_SERVER_CORE_CALL_BUDGET_H_
#define DDPRUN_RENDEZVOUS_SERVER_CORE_CALL_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::rendezvous {

// Limits how often unauthenticated peers are answered: each address kBurst times at once, and once
// more for each `every` that passes. Addresses beyond kAddressesMax share one allowance. Pure; each
// step is O(log n), with n at most kAddressesMax + 1.
class CallBudget {
 public:
  static constexpr int64_t kBurst = 256;
  static constexpr absl::Duration kEvery = absl::Microseconds(15'625);
  static constexpr size_t kAddressesMax = 4096;

  // Params: every: positive.
  explicit CallBudget(absl::Duration every = kEvery) : every_(every) {}

  // A peer calls. Returns false, and counts nothing, if its address has spent its allowance.
  // Params: address: peers with the same one share an allowance; not empty.
  bool Take(const std::string& address, Instant now);

  // The number of addresses that have used a part of their allowance.
  size_t addresses() const { return whole_at_.size(); }

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  const absl::Duration every_;
  // When an address' allowance is whole again: after the latest time, and at most kBurst * every_
  // later; otherwise the address is removed. "" is the shared allowance.
  absl::flat_hash_map<std::string, Instant> whole_at_;
  std::set<std::pair<Instant, std::string>> next_;  // the entries of whole_at_ by time
  Instant latest_;                                  // the latest `now` of all calls
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CORE_CALL_BUDGET_H_
