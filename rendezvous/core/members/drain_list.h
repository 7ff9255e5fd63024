#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_DRAIN_LIST_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_DRAIN_LIST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/core/types.h"
#include "rendezvous/core/views.h"

namespace ddprun::rendezvous {

// The machines that were asked to leave, and may not join again until that is undone (R15). Pure.
//
// A drained node leaves as a preempted one does, but its machine stays away: supervisors start at
// once what has ended. A drained machine isn't kept as a spare, because spares hold GPUs that
// somebody wants to work on.
class DrainList {
 public:
  // Bound: the last kDrainedMax; the oldest one may join again then.
  void Add(DrainedNode node);
  // Lets the node's machines join again. False: it wasn't drained.
  bool Undo(const NodeId& node);

  // What was said when it was drained last; null = it wasn't. Valid until the next change.
  const DrainedNode* Find(const NodeId& node) const;
  // Errors: ABORTED — an agent of a drained machine; says how to let it in. An address tells apart
  // machines that have one name after the other, as pods do.
  absl::Status CheckMachine(const std::string& hostname, const std::string& address) const;

  // The latest last.
  const std::vector<DrainedNode>& nodes() const { return nodes_; }
  // What is wrong with the list; "" = nothing.
  std::string BrokenInvariant() const;

 private:
  std::vector<DrainedNode> nodes_;  // latest last; at most kDrainedMax, and each has a name
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_DRAIN_LIST_H_
