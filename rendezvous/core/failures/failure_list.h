#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURES_FAILURE_LIST_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURES_FAILURE_LIST_H_

#include <string>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/failures/first_cause.h"
#include "rendezvous/core/identifiers.h"
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

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_FAILURE_LIST_H_
