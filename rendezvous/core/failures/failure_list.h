#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURES_FAILURE_LIST_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURES_FAILURE_LIST_H_

#include <cstddef>
#include <string>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/failures/first_cause.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/verdict.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::rendezvous {

// The failures of a generation that may be its first cause (R12). If more than kFailuresMax are
// reported, the weakest one is dropped: a node's second failure before any node's strongest, then
// by evidence, then the latest. So failures that follow from the cause don't displace it. Pure.
//
// Cost: O(kFailuresMax).
class FailureList {
 public:
  // Adds a failure, or completes the report of the same rank, which keeps its arrival. Requires:
  // arrivals never go back.
  void Add(WorkerFailure failure, Instant arrival);

  // By arrival.
  const std::vector<ReportedFailure>& reported() const { return reported_; }
  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  void FindStrongestOf(const NodeId& node);
  size_t Weakest() const;

  std::vector<ReportedFailure> reported_;  // one a rank, by arrival; at most kFailuresMax
  // Parallel to reported_:
  std::vector<Evidence> evidence_;
  std::vector<bool> strongest_;  // of its node
};

// Cuts a verdict for many nodes (R8): its size is that of its texts times the nodes. Pure.

// The bytes that a verdict to `nodes` nodes may take on the wire: their share of kVerdictsBytesMax,
// and at least kVerdictBytesMin. Requires: nodes > 0.
size_t VerdictBytesFor(size_t nodes);

// Upper bound of the verdict's bytes on the wire. Requires: texts are UTF-8, as all from the wire
// are.
size_t BytesOnWire(const Verdict& verdict);

// The verdict within `bytes_max`. Leaves out, the least important first: stack and stderr of
// failures that aren't first causes, the last failure first; those failures; stack and stderr of
// the first causes that tie with the first one; the texts of the first one, each from its less
// useful end. The result has the number of failures left out, and marks those that lack texts.
// Requires: a verdict that wasn't cut; bytes_max >= kVerdictBytesMin.
Verdict CutVerdict(Verdict verdict, size_t bytes_max);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_FAILURE_LIST_H_
