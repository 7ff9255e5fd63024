#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_DRAIN_LIST_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_DRAIN_LIST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/views.h"

namespace ddprun::rendezvous {

// The machines that were asked to leave, and may not join again until the drain is undone (R15).
// Pure.
//
// A drained node leaves as a preempted one does, but its machine must stay away, because a
// supervisor restarts an agent that has ended at once. A drained machine isn't kept as a spare,
// because spares hold GPUs that an operator wants to work on.
class DrainList {
 public:
  // Adds a machine. Bound: the last kDrainedMax; after that the oldest one may join again.
  void Add(DrainedNode node);
  // Lets the node's machines join again. Returns false if none was drained.
  bool Undo(const NodeId& node);

  // The node's latest entry; null = it wasn't drained. Valid until the next change.
  const DrainedNode* Find(const NodeId& node) const;
  // Errors: ABORTED: an agent of a drained machine; the text says how to let it in. The address
  // distinguishes machines that have the same name one after the other, as pods do.
  absl::Status CheckMachine(const std::string& hostname, const std::string& address) const;

  // The latest entry last.
  const std::vector<DrainedNode>& nodes() const { return nodes_; }
  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  std::vector<DrainedNode> nodes_;  // latest last; at most kDrainedMax, and each has a name
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_DRAIN_LIST_H_
