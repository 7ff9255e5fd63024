#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_ROSTER_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_ROSTER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/members/lease_table.h"
#include "rendezvous/core/members/node_table.h"

namespace ddprun::rendezvous {

// All nodes of a job, the number of those that could start, and the bounds that are over. The
// counters and deadlines follow each change of a node at once, so nodes change only through Roster,
// and all other code sees them as const. A change costs O(log n). Pure.
class Roster {
 public:
  // Which bound of a node is over.
  enum class Bound { kGrace, kLease, kStop };
  struct Overdue {
    const Node* node;
    Bound bound;
  };

  // ---- Changes of nodes.

  // Adds a node without a stream. Requires: no node has this id. The reference is valid until
  // Remove.
  const Node& Add(const NodeId& id, Incarnation incarnation, const NodeInfo& info);
  // Adds the record of a node that departed in a former life of the service.
  void AddDeparted(Incarnation incarnation, Departed record) {
    table_.AddDeparted(incarnation, std::move(record));
  }
  // Removes a node without a stream and keeps its record. Returns the join order of the node that
  // now holds its claim, and may be able to start.
  std::optional<uint64_t> Remove(const Node& node, Departed record);
  // Gives the node a stream. Params: lease: see Node::Greet. Requires: the node has none.
  void Attach(const Node& node, StreamKey stream, StreamNumber number, Instant now,
              std::optional<absl::Duration> lease);
  // Takes the node's stream away. The stream is a stray until the shell reports its end.
  StreamKey Detach(const Node& node);
  // Adds a stream without a node that the service is closing.
  void AddStray(StreamKey stream) { table_.AddStray(stream); }
  // The shell reports that the stream is closed. Returns the node that had it.
  const Node* Close(StreamKey stream);
  // The only way to call a method of Node that changes it: roster.Change(node, [](Node& n) {
  // n.BecomeWaiting(); }). Returns what `verb` returns.
  template <typename Verb>
  auto Change(const Node& node, const Verb& verb) {
    Node& own = Own(node);
    if constexpr (std::is_void_v<decltype(verb(own))>) {
      verb(own);
      Refresh(own);
    } else {
      auto result = verb(own);
      Refresh(own);
      return result;
    }
  }
  // Calls `verb` for all nodes, in join order.
  template <typename Verb>
  void ChangeAll(const Verb& verb) {
    for (auto& [order, node] : table_.nodes()) {
      verb(node);
      Refresh(node);
    }
  }
  // The job has ended: no node can start any more.
  void Retire();
  // Returns a node with a bound that is over, if there is one. The caller removes the node.
  std::optional<Overdue> TakeOverdue(Instant now);

  // ---- Queries.

  const NodeTable::Nodes& nodes() const { return table_.nodes(); }
  bool empty() const { return table_.nodes().empty(); }
  // Ids, streams, claims and departed nodes.
  const NodeTable& table() const { return table_; }
  // Nodes that could start now: with a stream, no workers, no rival for its claim, and not asked to
  // leave. Node::counted marks them.
  uint32_t candidates() const { return candidates_; }
  // Candidates that have answered a probe.
  uint32_t answering() const { return answering_; }
  // Members with an expired lease that the job waits for (Node::silent).
  uint32_t silent() const { return silent_; }
  // The earliest bound of all nodes; infinite = none has one.
  Instant deadline() const { return deadlines_.Earliest(); }
  // The nodes below nodes_min that haven't joined, if every node claims its rank: "node ranks 3,
  // 5"; else "".
  std::string MissingText(uint32_t nodes_min) const;

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  Node& Own(const Node& node);
  void Refresh(Node& node);
  bool CouldStart(const Node& node) const;

  NodeTable table_;
  bool retired_ = false;
  uint32_t candidates_ = 0;  // nodes with `counted`, which CouldStart
  uint32_t claiming_ = 0;    // candidates with a claim
  uint32_t answering_ = 0;   // candidates that have answered a probe
  uint32_t silent_ = 0;      // nodes with `silent`
  DeadlineQueue deadlines_;  // for each node its deadline()
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_ROSTER_H_
