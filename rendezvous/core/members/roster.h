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

// All nodes of a job: who could start, and who has been silent for too long. What it counts and
// what it waits for follow each change of a node at once, so nodes change through it only, and
// others see them as const. A change costs O(log n). Pure.
class Roster {
 public:
  // Which bound of a node is over.
  enum class Bound { kGrace, kLease, kStop };
  struct Overdue {
    const Node* node;
    Bound bound;
  };

  // ---- Changes.

  // A node without a stream. Requires: no node with this id. Valid until Remove.
  const Node& Add(const NodeId& id, Incarnation incarnation, const NodeInfo& info);
  // Remembers one that isn't there, of another life of the service.
  void AddDeparted(Incarnation incarnation, Departed record) {
    table_.AddDeparted(incarnation, std::move(record));
  }
  // Forgets a node without a stream but for its record. Returns the join order of the node that now
  // holds its claim, and may be able to start.
  std::optional<uint64_t> Remove(const Node& node, Departed record);
  // Params: lease: see Node::Greet. Requires: it has no stream.
  void Attach(const Node& node, StreamKey stream, StreamNumber number, Instant now,
              std::optional<absl::Duration> lease);
  // Takes the node's stream away; until the shell says that it closed, it is a stray.
  StreamKey Detach(const Node& node);
  // A stream without a node that we are closing.
  void AddStray(StreamKey stream) { table_.AddStray(stream); }
  // The shell says that it is closed. Returns the node that had it.
  const Node* Close(StreamKey stream);
  // The one door to all verbs of Node: roster.Change(node, [](Node& n) { n.BecomeWaiting(); }).
  // Returns what `verb` does.
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
  // The same for all nodes, in join order.
  template <typename Verb>
  void ChangeAll(const Verb& verb) {
    for (auto& [order, node] : table_.nodes()) {
      verb(node);
      Refresh(node);
    }
  }
  // The job has ended: nobody can start any more.
  void Retire();
  // Takes out a node with a bound that is over, if there is one. The caller removes it.
  std::optional<Overdue> TakeOverdue(Instant now);

  // ---- Looks.

  const NodeTable::Nodes& nodes() const { return table_.nodes(); }
  bool empty() const { return table_.nodes().empty(); }
  // Ids, streams, claims and those who left.
  const NodeTable& table() const { return table_; }
  // Nodes that could start now: with a stream, no workers, no rival for its claim, and not asked to
  // leave. Node::counted says which.
  uint32_t candidates() const { return candidates_; }
  // Those of them that have answered a probe.
  uint32_t answering() const { return answering_; }
  // Members whose lease is over and that are waited for (Node::silent).
  uint32_t silent() const { return silent_; }
  // When the first bound of a node is over; infinite = none has one.
  Instant deadline() const { return deadlines_.Earliest(); }
  // Who is yet to come of `nodes_min`, where everybody says by a claim who it is: "node ranks 3,
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
  uint32_t candidates_ = 0;  // nodes with CouldStart, which are those with `counted`
  uint32_t claiming_ = 0;    // of these, those with a claim; <= candidates_
  uint32_t answering_ = 0;   // of these, those that have answered a probe; <= candidates_
  uint32_t silent_ = 0;      // nodes with `silent`
  DeadlineQueue deadlines_;  // for each node its deadline()
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_ROSTER_H_
