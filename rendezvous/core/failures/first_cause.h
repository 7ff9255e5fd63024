#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURES_FIRST_CAUSE_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURES_FIRST_CAUSE_H_

#include <cstdint>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// A failure and when its report came.
struct ReportedFailure {
  WorkerFailure failure;
  Instant arrival;
};

// How much a failure looks like a cause, strongest first (R12).
enum class Evidence {
  kOwnDeath,     // a signal that isn't ours, out of memory, it never started, or it hung
  kException,    // says why, and that is not the loss of a peer
  kUnexplained,  // an exit code or SIGPIPE, and no word
  kPeerError,    // a collective or a peer failed: most likely a consequence
};

// Judges one failure by its texts and its way to end. Pure.
Evidence Weigh(const WorkerFailure& failure);

struct FirstCause {
  std::vector<WorkerFailure> failures;  // likely causes first; at most kFailuresMax
  uint32_t ties = 0;  // leading failures that can't be told apart; 0 = none at all
};

// Orders failures by evidence, not by clocks (R12): weight; on one node the time after its first
// failure; between nodes the arrival, unless they came within kArrivalTie: a tie. Pure.
FirstCause FindFirstCause(const std::vector<ReportedFailure>& reported);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_FIRST_CAUSE_H_
