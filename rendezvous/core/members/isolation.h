#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_ISOLATION_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_ISOLATION_H_

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/members/node_table.h"

namespace ddprun::rendezvous {

// Whether so many nodes are silent at once that the service itself is probably cut off, while the
// workers go on (R4). The node that hosts the service is no evidence, because its messages cross no
// network. If it is heard, two others must be silent, because a single one is as likely to have
// died.
// Params: lease: of the job; a node that was silent for half of it counts as silent.
bool HearsNobody(const NodeTable::Nodes& nodes, Instant now, absl::Duration lease);

// How long leases aren't judged because no node is heard. Pure.
//
//   connected ─Holds: no node is heard─► isolated ─Close─► connected
class Isolation {
 public:
  // Whether an expired lease doesn't count for now: no node is heard, and the isolation isn't too
  // long.
  bool Holds(Instant now, bool hears_nobody);
  // A node is heard again, or no generation runs that could be kept.
  void Close() { since_ = Instant::Infinite(); }

  bool open() const { return !since_.is_infinite(); }
  // The time of the first lease that wasn't judged; infinite = the service isn't isolated.
  Instant since() const { return since_; }

 private:
  Instant since_ = Instant::Infinite();  // <= now, or infinite
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_ISOLATION_H_
