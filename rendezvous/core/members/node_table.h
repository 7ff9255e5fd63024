#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_NODE_TABLE_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_NODE_TABLE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "rendezvous/core/events.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/members/node.h"
#include "rendezvous/core/node_info.h"

namespace ddprun::rendezvous {

// All nodes of a job and their streams. Iteration is in join order. Bounds: kNodesMax nodes, and as
// many departed ones.
class NodeTable {
 public:
  using Nodes = std::map<uint64_t, Node>;

  // Adds a node without a stream. Requires: no node has this id. The reference is valid until
  // Remove.
  Node& Add(const NodeId& id, Incarnation incarnation, const NodeInfo& info);
  // Removes the node and keeps its Departed record. Requires: it has no stream.
  void Remove(Node& node, Departed record);
  // Adds the record of a node that isn't in the table.
  void AddDeparted(Incarnation incarnation, Departed record);
  const Departed* FindDeparted(Incarnation incarnation) const;
  // Incarnations, in the order in which they departed.
  const std::deque<uint64_t>& departed() const { return departed_order_; }

  Node* FindById(const NodeId& id);
  const Node* FindById(const NodeId& id) const;
  Node* FindByOrder(uint64_t order);
  const Node* FindByOrder(uint64_t order) const;

  // Gives the node this stream. Requires: it has none.
  void Attach(Node& node, StreamKey stream, StreamNumber number);
  // Takes the node's stream away. The stream is a stray until the shell reports its end.
  StreamKey Detach(Node& node);
  // Adds a stream without a node that the service is closing.
  void AddStray(StreamKey stream);
  bool IsStray(StreamKey stream) const;
  Node* FindByStream(StreamKey stream);
  const Node* FindByStream(StreamKey stream) const;
  // The shell reports that the stream is closed. Returns the node that had it.
  Node* Close(StreamKey stream);
  size_t stream_count() const { return streams_.size(); }
  size_t connected() const { return connected_; }

  // Whether no earlier node claims the same node rank. True without a claim.
  bool HoldsItsClaim(const Node& node) const;
  // Join orders of the nodes with this claim, the holder first.
  std::vector<uint64_t> Claimants(uint32_t claim) const;
  // The node ranks below `end` that no node claims, ascending.
  std::vector<uint32_t> Unclaimed(uint32_t end) const;

  Nodes& nodes() { return nodes_; }
  const Nodes& nodes() const { return nodes_; }

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  std::string BrokenClaims() const;

  uint64_t next_order_ = 1;                           // above all join orders so far
  Nodes nodes_;                                       // by join order
  absl::flat_hash_map<std::string, uint64_t> by_id_;  // join orders; one for each node
  // Stream key to the join order of its node; 0 = a stray.
  absl::flat_hash_map<uint64_t, uint64_t> streams_;
  // Node rank to the join orders of its claimants, ascending; none is empty.
  std::map<uint32_t, std::vector<uint64_t>> claims_;
  size_t connected_ = 0;                              // nodes with a stream
  absl::flat_hash_map<uint64_t, Departed> departed_;  // by incarnation
  std::deque<uint64_t> departed_order_;               // keys of departed_, oldest first
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_NODE_TABLE_H_
