#include "rendezvous/core/members/node_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

Node& NodeTable::Add(const NodeId& id, Incarnation incarnation, const NodeInfo& info) {
  const uint64_t order = next_order_++;
  const bool fresh = by_id_.emplace(id.value(), order).second;
  DDPRUN_CHECK(fresh, id.value());
  Node& node = nodes_[order];
  node.order = order;
  node.id = id;
  node.incarnation = incarnation;
  node.info = info;
  if (info.node_rank) claims_[*info.node_rank].push_back(order);
  return node;
}

void NodeTable::Remove(Node& node, Departed record) {
  DDPRUN_CHECK(!node.stream, node.id.value());
  if (node.info.node_rank) {
    const auto claim = claims_.find(*node.info.node_rank);
    DDPRUN_CHECK(claim != claims_.end(), node.id.value());
    std::erase(claim->second, node.order);
    if (claim->second.empty()) claims_.erase(claim);
  }
  AddDeparted(node.incarnation, std::move(record));
  by_id_.erase(node.id.value());
  nodes_.erase(node.order);
}

void NodeTable::AddDeparted(Incarnation incarnation, Departed record) {
  if (departed_.insert_or_assign(incarnation.value(), std::move(record)).second) {
    departed_order_.push_back(incarnation.value());
  }
  if (departed_order_.size() > kNodesMax) {
    departed_.erase(departed_order_.front());
    departed_order_.pop_front();
  }
}

const Departed* NodeTable::FindDeparted(Incarnation incarnation) const {
  const auto found = departed_.find(incarnation.value());
  return found == departed_.end() ? nullptr : &found->second;
}

Node* NodeTable::FindById(const NodeId& id) {
  const auto found = by_id_.find(id.value());
  return found == by_id_.end() ? nullptr : &nodes_.at(found->second);
}

const Node* NodeTable::FindById(const NodeId& id) const {
  const auto found = by_id_.find(id.value());
  return found == by_id_.end() ? nullptr : &nodes_.at(found->second);
}

Node* NodeTable::FindByOrder(uint64_t order) {
  const auto found = nodes_.find(order);
  return found == nodes_.end() ? nullptr : &found->second;
}

const Node* NodeTable::FindByOrder(uint64_t order) const {
  const auto found = nodes_.find(order);
  return found == nodes_.end() ? nullptr : &found->second;
}

void NodeTable::Attach(Node& node, StreamKey stream, StreamNumber number) {
  DDPRUN_CHECK(!node.stream, node.id.value());
  streams_[stream.value()] = node.order;
  node.stream = stream;
  node.stream_number = number;
  ++connected_;
}

StreamKey NodeTable::Detach(Node& node) {
  DDPRUN_CHECK(node.stream.has_value(), node.id.value());
  DDPRUN_CHECK(connected_ > 0, node.id.value());
  const StreamKey stream = *std::exchange(node.stream, std::nullopt);
  streams_[stream.value()] = 0;
  --connected_;
  return stream;
}

void NodeTable::AddStray(StreamKey stream) { streams_.emplace(stream.value(), 0); }

bool NodeTable::IsStray(StreamKey stream) const {
  const auto found = streams_.find(stream.value());
  return found != streams_.end() && found->second == 0;
}

Node* NodeTable::FindByStream(StreamKey stream) {
  const auto found = streams_.find(stream.value());
  return found == streams_.end() || found->second == 0 ? nullptr : &nodes_.at(found->second);
}

const Node* NodeTable::FindByStream(StreamKey stream) const {
  const auto found = streams_.find(stream.value());
  return found == streams_.end() || found->second == 0 ? nullptr : &nodes_.at(found->second);
}

Node* NodeTable::Close(StreamKey stream) {
  Node* node = FindByStream(stream);
  if (node != nullptr) Detach(*node);
  streams_.erase(stream.value());
  return node;
}

bool NodeTable::HoldsItsClaim(const Node& node) const {
  if (!node.info.node_rank) return true;
  const auto claim = claims_.find(*node.info.node_rank);
  return claim != claims_.end() && claim->second.front() == node.order;
}

std::vector<uint64_t> NodeTable::Claimants(uint32_t claim) const {
  const auto found = claims_.find(claim);
  return found == claims_.end() ? std::vector<uint64_t>{} : found->second;
}

std::vector<uint32_t> NodeTable::Unclaimed(uint32_t end) const {
  std::vector<uint32_t> free;
  auto claim = claims_.begin();
  for (uint32_t rank = 0; rank < end; ++rank) {
    if (claim != claims_.end() && claim->first == rank) {
      ++claim;
    } else {
      free.push_back(rank);
    }
  }
  return free;
}

std::string NodeTable::BrokenInvariant() const {
  if (by_id_.size() != nodes_.size()) return "two nodes with one id";
  size_t connected = 0;
  for (const auto& [order, node] : nodes_) {
    if (order != node.order || order >= next_order_) return "a node with another's order";
    const auto known = by_id_.find(node.id.value());
    if (known == by_id_.end() || known->second != order) return "a node that its id doesn't name";
    if (!node.stream) continue;
    ++connected;
    const auto stream = streams_.find(node.stream->value());
    if (stream == streams_.end() || stream->second != order) return "a stream of two nodes";
  }
  if (connected != connected_) return "the number of open streams is wrong";
  size_t owned = 0;
  for (const auto& [key, order] : streams_) owned += order == 0 ? 0 : 1;
  if (owned != connected) return "a stream of a node that is gone";
  if (departed_.size() != departed_order_.size()) return "a departed node that is never forgotten";
  return BrokenClaims();
}

std::string NodeTable::BrokenClaims() const {
  size_t claimants = 0;
  for (const auto& [rank, orders] : claims_) {
    if (orders.empty()) return "a claim of nobody";
    if (!std::is_sorted(orders.begin(), orders.end())) return "a claim whose holder came later";
    for (const uint64_t order : orders) {
      const Node* node = FindByOrder(order);
      if (node == nullptr || node->info.node_rank != rank) return "a claim of another node";
    }
    claimants += orders.size();
  }
  for (const auto& [order, node] : nodes_) claimants -= node.info.node_rank ? 1 : 0;
  return claimants == 0 ? "" : "a claimant that no claim knows";
}

}  // namespace ddprun::rendezvous
