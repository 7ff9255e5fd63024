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
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/job_spec.h"

namespace ddprun::rendezvous {

// The node on which a generation's failure began, if the evidence says so (R2): all first causes
// are on it, none of them is the loss of a peer, and none was killed from outside.
std::optional<NodeId> BlamedNode(const FirstCause& cause);

// Counts the failures that began on each node. A failure counts for RestartRules::quarantine_time;
// a node with quarantine_after failures is in quarantine until fewer count. Bounds: the newest
// quarantine_after failures of each node, and at most one failure for each restart within
// quarantine_time.
class NodeBlame {
 public:
  // Sets the job's rules. Requires: no failure was added before.
  void SetRules(const RestartRules& rules);

  // Adds a failure that began on this node now.
  void Add(const NodeId& node, const std::string& hostname, Instant now);
  // Passes the failures of a former agent on this host, which is gone, on to a new agent there.
  void Inherit(const NodeId& node, const std::string& hostname,
               const std::function<bool(const NodeId&)>& is_present);

  // How many failures count against the node now.
  uint32_t Count(const NodeId& node, Instant now) const;
  bool Quarantined(const NodeId& node, Instant now) const;
  std::vector<NodeId> QuarantinedNodes(Instant now) const;
  // When the next quarantine of a node ends; infinite = no node is in quarantine.
  Instant NextRelease(Instant now) const;
  // For the job's record, and back from it. Requires: the same rules as when they were added.
  std::vector<BlameRecord> ToRecord(Instant now) const;
  void Recover(Instant now, const std::vector<BlameRecord>& records);
  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  struct Record {
    std::string hostname;
    // Oldest first; from 1 to quarantine_after.
    std::deque<Instant> failures;
  };

  uint32_t CountOf(const Record& record, Instant now) const;
  void NoteFull();

  RestartRules rules_;
  std::map<NodeId, Record> records_;  // empty with quarantine_after == 0
  // Whether any record has quarantine_after failures, even if they no longer count. If not, no node
  // can be in quarantine.
  bool any_full_ = false;
};

// Leaves nodes in quarantine out, as far as `nodes_min` allows. If too few are left, those with the
// fewest failures step in, in the given order. Pure.
// Params: counts: for each candidate in quarantine its failures; nullopt = not in quarantine.
// Returns: indices of the candidates that may take part, in the given order.
std::vector<size_t> LeaveOut(const std::vector<std::optional<uint32_t>>& counts,
                             uint32_t nodes_min);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_NODE_BLAME_H_
