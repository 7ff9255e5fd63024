#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURES_FIRST_CAUSE_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURES_FIRST_CAUSE_H_

#include <cstdint>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::rendezvous {

// A failure, and the arrival of its report.
struct ReportedFailure {
  WorkerFailure failure;
  Instant arrival;
};

// How much a failure looks like a cause, strongest first (R12).
enum class Evidence {
  kOwnDeath,     // a signal that isn't ours, out of memory, it never started, or it hung
  kException,    // reports a reason other than the loss of a peer
  kUnexplained,  // an exit code or SIGPIPE, without a message
  kPeerError,    // a collective or a peer failed: probably a consequence
};

// Weighs one failure by its texts and by how it ended. Pure.
Evidence Weigh(const WorkerFailure& failure);

struct FirstCause {
  std::vector<WorkerFailure> failures;  // likely causes first; at most kFailuresMax
  uint32_t ties = 0;                    // how many of the first ones tie; 0 = no failures
};

// Orders failures by evidence, not by clocks (R12): first by Weigh(); on one node by the time after
// its first failure; between nodes by arrival, where arrivals within kArrivalTie tie. Pure.
FirstCause FindFirstCause(const std::vector<ReportedFailure>& reported);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_FIRST_CAUSE_H_
