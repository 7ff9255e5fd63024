#ifndef DDPRUN_RENDEZVOUS_CORE_NODE_TABLE_H_
#define DDPRUN_RENDEZVOUS_CORE_NODE_TABLE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/instant.h"
#include "rendezvous/core/message.h"
#include "rendezvous/core/state_machine.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// An agent process that has joined and is neither lost nor gone.
struct Node {
  uint64_t order = 0;  // join order, from 1; unique for the life of the job
  NodeId id;
  Incarnation incarnation;
  NodeInfo info;  // its master_port: 0 once a generation has used it (R11)
  StreamNumber stream_number;
  std::optional<StreamKey> stream;  // empty: in its reconnect grace
  uint64_t processed = 0;           // sequence of the last event that was processed (R6)

  Instant proof;                            // when the last renewed probe was sent
  Instant heard;                            // when the last renewal or Join came
  Instant closed_at = Instant::Infinite();  // when the stream closed
  Instant lease_end = Instant::Infinite();
  Instant grace_end = Instant::Infinite();   // of the reconnect grace
  Instant stop_bound = Instant::Infinite();  // when StopWorkers must have been answered

  std::optional<uint32_t> group_rank;  // member of the live generation
  Generation cleaning;                 // workers of this one must stop first; 0 = it is idle
  uint64_t idle_nonce = 0;  // a renewal of this probe shows that a member never got its assignment
  std::optional<Standby> standby;  // the last one sent on this stream
  bool counted = false;            // among the candidates
  bool draining = false;           // it was asked to leave (R15)

  // What its last renewal of the live generation told; for View.
  std::vector<uint64_t> progress;
  absl::Duration step_time;
  Instant progress_at;
  // And what any renewal did.
  std::vector<GpuUse> gpus;
  Instant gpus_at;
};

// What is remembered of an agent process that is not there any more.
struct Departed {
  NodeId id;
  StreamNumber stream_number;
  uint64_t processed = 0;
  absl::Status refusal;               // not OK: it may not come back, and why
  bool left = false;                  // it left by itself
  Generation done_in;                 // it had succeeded in this generation,
  std::optional<uint32_t> done_rank;  // with this group rank
};

// All nodes of a job and their streams. Iteration is in join order. Bounds: kNodesMax nodes, as
// many departed ones.
class NodeTable {
 public:
  using Nodes = std::map<uint64_t, Node>;

  // Adds a node without a stream. Requires: no node with this id. The reference stays valid until
  // Remove.
  Node& Add(const NodeId& id, Incarnation incarnation, const NodeInfo& info);
  // Forgets the node but for its Departed record. Requires: it has no stream.
  void Remove(Node& node, Departed record);
  const Departed* FindDeparted(Incarnation incarnation) const;

  Node* FindById(const NodeId& id);
  const Node* FindById(const NodeId& id) const;
  Node* FindByOrder(uint64_t order);
  const Node* FindByOrder(uint64_t order) const;

  // Makes `stream` the node's. Requires: it has none.
  void Attach(Node& node, StreamKey stream, StreamNumber number);
  // Takes the node's stream away; until the shell says that it closed, it is a stray.
  StreamKey Detach(Node& node);
  // A stream without a node that we are closing.
  void AddStray(StreamKey stream);
  bool IsStray(StreamKey stream) const;
  Node* FindByStream(StreamKey stream);
  // The shell says that it is closed. Returns the node that had it.
  Node* Close(StreamKey stream);
  size_t stream_count() const { return streams_.size(); }
  size_t connected() const { return connected_; }

  // Whether nobody who came before claims the same node rank. True without a claim.
  bool HoldsItsClaim(const Node& node) const;
  // Join orders of the nodes with this claim, the holder first.
  std::vector<uint64_t> Claimants(uint32_t claim) const;
  // The node ranks below `end` that nobody claims, ascending.
  std::vector<uint32_t> Unclaimed(uint32_t end) const;

  Nodes& nodes() { return nodes_; }
  const Nodes& nodes() const { return nodes_; }

 private:
  uint64_t next_order_ = 1;
  Nodes nodes_;
  absl::flat_hash_map<std::string, uint64_t> by_id_;
  absl::flat_hash_map<uint64_t, uint64_t> streams_;  // stream key to join order; 0 = a stray
  std::map<uint32_t, std::vector<uint64_t>> claims_;
  size_t connected_ = 0;
  absl::flat_hash_map<uint64_t, Departed> departed_;  // by incarnation
  std::deque<uint64_t> departed_order_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_NODE_TABLE_H_
