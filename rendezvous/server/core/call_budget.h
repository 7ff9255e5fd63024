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

// How often strangers are answered: each address kBurst times at once, and once more for each
// `every` that passes. Addresses for which there is no room share one allowance. Pure; each step is
// O(log n), and n at most kAddressesMax + 1.
class CallBudget {
 public:
  static constexpr int64_t kBurst = 256;
  static constexpr absl::Duration kEvery = absl::Microseconds(15'625);
  static constexpr size_t kAddressesMax = 4096;

  // Params: every: positive.
  explicit CallBudget(absl::Duration every = kEvery) : every_(every) {}

  // Somebody calls. False: its address has had its share, and nothing is counted.
  // Params: address: who shares it shares its allowance; not empty.
  bool Take(const std::string& address, Instant now);

  // Those whose allowance isn't whole.
  size_t addresses() const { return whole_at_.size(); }

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  const absl::Duration every_;
  // When an address' allowance is whole again: after the latest time, else it is forgotten; at most
  // kBurst * every_ after it. "": what is shared.
  absl::flat_hash_map<std::string, Instant> whole_at_;
  std::set<std::pair<Instant, std::string>> next_;  // of whole_at_
  Instant latest_;                                  // the latest time that was told
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CORE_CALL_BUDGET_H_
