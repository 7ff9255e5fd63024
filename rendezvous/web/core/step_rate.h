#ifndef DDPRUN_RENDEZVOUS_WEB_CORE_STEP_RATE_H_
#define DDPRUN_RENDEZVOUS_WEB_CORE_STEP_RATE_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::rendezvous {

// The step of a job at one moment.
struct StepReading {
  Instant at;
  uint64_t generation = 0;
  std::optional<uint64_t> step;  // of the rank that is furthest back; nullopt = none marks
  absl::Duration step_time;      // of the slowest node; zero = unknown
};

// Steps a second as they were really done, so that a save, a wait for data or a hang shows; a
// median step shows none of them. If steps last longer than the time between two readings, the rate
// stays until the next step is overdue; then it is 0.
class StepRate {
 public:
  // The rate at this reading; nullopt = unknown: no marks, or the first reading of a generation.
  // Requires: readings in the order of their time.
  std::optional<double> Take(const StepReading& reading);

 private:
  uint64_t generation_ = 0;
  std::optional<uint64_t> step_;
  Instant moved_;  // when step_ was first read
  std::optional<double> rate_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_CORE_STEP_RATE_H_
