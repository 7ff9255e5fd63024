#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_NOTE_BUDGET_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_NOTE_BUDGET_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::rendezvous {

// Limits notes about events that any peer can cause: a flood of them would displace the job's other
// events (R9). Allows kBurst notes at once, and one more for each kEvery that passes. Pure.
class NoteBudget {
 public:
  static constexpr uint32_t kBurst = 32;
  static constexpr absl::Duration kEvery = absl::Seconds(2);

  // Takes one note from the budget. Returns how many were suppressed since the last one, or
  // nullopt: this one is suppressed, too.
  std::optional<uint64_t> Take(Instant now);

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant(Instant now) const;

 private:
  uint32_t left_ = kBurst;  // at most kBurst
  Instant refilled_;        // <= now; at most kEvery ago when left_ < kBurst
  uint64_t left_out_ = 0;   // notes suppressed since the last one
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_NOTE_BUDGET_H_
