#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_NOTE_BUDGET_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_NOTE_BUDGET_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::rendezvous {

// How much is noted of what anybody can cause: a flood of it would push out of the job's events
// what matters (R9). kBurst notes at once, and one more for each kEvery that passes. Pure.
class NoteBudget {
 public:
  static constexpr uint32_t kBurst = 32;
  static constexpr absl::Duration kEvery = absl::Seconds(2);

  // Something is to be noted. Returns how many were left out before it, or nullopt: this is, too.
  std::optional<uint64_t> Take(Instant now);

  // What is wrong with it; "" = nothing.
  std::string BrokenInvariant(Instant now) const;

 private:
  uint32_t left_ = kBurst;  // at most kBurst
  Instant refilled_;        // <= now; at most kEvery ago when left_ < kBurst
  uint64_t left_out_ = 0;   // since the last that was noted
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_NOTE_BUDGET_H_
