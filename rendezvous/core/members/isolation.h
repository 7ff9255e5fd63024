#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_ISOLATION_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_ISOLATION_H_

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/members/node_table.h"

namespace ddprun::rendezvous {

// Whether nobody is heard any more, at once, of whom a lease would say that they all died: then it
// is more likely that the service itself is cut off, and that the workers go on (R4). Of the nodes
// the one that hosts the service proves nothing, as its words cross no network; where it is heard,
// two others must be silent, as one alone is as likely to have died.
// Params: lease: of the job; who said nothing for half of it is silent.
bool HearsNobody(const NodeTable::Nodes& nodes, Instant now, absl::Duration lease);

// For how long leases are not judged because nobody is heard. Pure.
//
//   connected ─Holds: nobody is heard─► isolated ─Close─► connected
class Isolation {
 public:
  // Whether a lease that is over doesn't count, for now: nobody is heard, and not for too long.
  bool Holds(Instant now, bool hears_nobody);
  // Somebody is heard again, or no generation runs any more that could be kept.
  void Close() { since_ = Instant::Infinite(); }

  bool open() const { return !since_.is_infinite(); }
  // Since the first lease that was not judged; infinite = it isn't isolated.
  Instant since() const { return since_; }

 private:
  Instant since_ = Instant::Infinite();  // <= now, or infinite
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_ISOLATION_H_
