#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURES_NODE_BLAME_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURES_NODE_BLAME_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/failures/first_cause.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// The node on which a failed generation's failure began, if the evidence says so (R2): all first
// causes are there, none of them is the loss of a peer, and none was killed from outside.
std::optional<NodeId> BlamedNode(const FirstCause& cause);

// Which nodes the job's failures began on, and when. A failure counts for
// RestartRules::quarantine_time; a node with quarantine_after of them is in quarantine until fewer
// count. Bounds: the newest quarantine_after failures of each node, at most one for each restart
// within quarantine_time.
class NodeBlame {
 public:
  // The job's. Requires: no failure was noted under others.
  void SetRules(const RestartRules& rules);

  // Notes a failure that began on this node now.
  void Add(const NodeId& node, const std::string& hostname, Instant now);
  // A new agent on a host whose former agent is gone answers for what happened there.
  void Inherit(const NodeId& node, const std::string& hostname,
               const std::function<bool(const NodeId&)>& is_present);

  // How many failures count against the node now.
  uint32_t Count(const NodeId& node, Instant now) const;
  bool Quarantined(const NodeId& node, Instant now) const;
  std::vector<NodeId> QuarantinedNodes(Instant now) const;
  // When the quarantine of a node ends next; infinite = none is in quarantine.
  Instant NextRelease(Instant now) const;
  // For the job's record, and back from it. Requires: the rules that they were noted under.
  std::vector<BlameRecord> ToRecord(Instant now) const;
  void Recover(Instant now, const std::vector<BlameRecord>& records);
  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  struct Record {
    std::string hostname;
    // Oldest first; 1 <= how many <= quarantine_after.
    std::deque<Instant> failures;
  };

  uint32_t CountOf(const Record& record, Instant now) const;
  void NoteFull();

  RestartRules rules_;
  std::map<NodeId, Record> records_;  // empty with quarantine_after == 0
  // Any of them has quarantine_after failures, whether they still count or not: as long as none
  // has, nobody needs to be looked at.
  bool any_full_ = false;
};

// Leaves nodes in quarantine out, as far as `nodes_min` allows: those with the fewest failures step
// in first, then those that come first. Pure.
// Params: counts — for each candidate its failures when it is in quarantine, else nullopt.
// Returns: indices of those that may take part, in the given order.
std::vector<size_t> LeaveOut(const std::vector<std::optional<uint32_t>>& counts,
                             uint32_t nodes_min);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_NODE_BLAME_H_
