#ifndef DDPRUN_RENDEZVOUS_CORE_VERDICT_H_
#define DDPRUN_RENDEZVOUS_CORE_VERDICT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::rendezvous {

// How a job ended; docs/SIGNALS.md has the exit statuses.
enum class Outcome {
  kSucceeded,
  kFailed,         // it may be started again
  kFailedForGood,  // starting it again won't help
  kStopped,        // on request
  kPreempted,      // its machines were taken away: start it again
};

// The end of a job, as the service reports it to all agents.
struct Verdict {
  Outcome outcome = Outcome::kFailed;
  std::string reason;
  std::vector<WorkerFailure> failures;  // first causes first
  uint32_t first_causes = 0;            // how many of them tie; 0 = there is none
  Generation generation;
  uint32_t restart_count = 0;
  std::string rule;                // name of the rule that decided the verdict (policy_rule.h)
  uint32_t failures_left_out = 0;  // failures that a verdict to many nodes lacks (R8)
  uint32_t causes_left_out = 0;    // those of them that tie for the first cause
  std::string whole_on;  // host of the agent that has the whole of a cut verdict; "" = none

  friend bool operator==(const Verdict&, const Verdict&) = default;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_VERDICT_H_
