#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURES_FAILURE_LIST_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURES_FAILURE_LIST_H_

#include <string>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/failures/first_cause.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// The failures of a generation that may be its first cause (R12). When more than kFailuresMax are
// reported, the weakest goes: a second one of a node before any node's strongest, then by evidence,
// then the one that came last. So whatever fails first because of the cause doesn't hide it. Pure.
//
// Cost: O(kFailuresMax).
class FailureList {
 public:
  // Notes a failure, or completes the one of the same rank, whose arrival stays. Arrivals never go
  // back.
  void Add(WorkerFailure failure, Instant arrival);

  // By arrival.
  const std::vector<ReportedFailure>& reported() const { return reported_; }
  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  void FindStrongestOf(const NodeId& node);
  size_t Weakest() const;

  std::vector<ReportedFailure> reported_;  // one a rank, by arrival; at most kFailuresMax
  // Of each of them:
  std::vector<Evidence> evidence_;
  std::vector<bool> strongest_;  // of its node
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_FAILURE_LIST_H_
