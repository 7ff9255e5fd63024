#include "rendezvous/core/members/roster.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace ddprun::rendezvous {

const Node& Roster::Add(const NodeId& id, Incarnation incarnation, const NodeInfo& info) {
  return table_.Add(id, incarnation, info);
}

std::optional<uint64_t> Roster::Remove(const Node& node, Departed record) {
  Node& own = Own(node);
  DDPRUN_CHECK(!own.counted, own.id.value());
  if (own.counted_silent) --silent_;
  deadlines_.Set(own.order, Instant::Infinite());
  const std::optional<uint32_t> claim = own.info.node_rank;
  table_.Remove(own, std::move(record));
  if (!claim) return std::nullopt;
  const std::vector<uint64_t> heirs = table_.Claimants(*claim);
  if (heirs.empty()) return std::nullopt;
  Refresh(*table_.FindByOrder(heirs.front()));
  return heirs.front();
}

void Roster::Attach(const Node& node, StreamKey stream, StreamNumber number, Instant now,
                    std::optional<absl::Duration> lease) {
  Node& own = Own(node);
  table_.Attach(own, stream, number);
  own.Greet(now, lease);
  Refresh(own);
}

StreamKey Roster::Detach(const Node& node) {
  Node& own = Own(node);
  const StreamKey stream = table_.Detach(own);
  Refresh(own);
  return stream;
}

const Node* Roster::Close(StreamKey stream) {
  Node* node = table_.Close(stream);
  if (node != nullptr) Refresh(*node);
  return node;
}

void Roster::Retire() {
  retired_ = true;
  ChangeAll([](Node& node) { node.Retire(); });
  DDPRUN_CHECK(candidates_ == 0, "somebody could start after the end");
}

std::optional<Roster::Overdue> Roster::TakeOverdue(Instant now) {
  const std::optional<uint64_t> order = deadlines_.PopDue(now);
  if (!order) return std::nullopt;
  const Node* node = table_.FindByOrder(*order);
  DDPRUN_CHECK(node != nullptr && node->deadline() <= now, "a deadline of nobody");
  if (now >= node->grace_end) return Overdue{node, Bound::kGrace};
  return Overdue{node, now >= node->lease_end ? Bound::kLease : Bound::kStop};
}

std::string Roster::MissingText(uint32_t nodes_min) const {
  constexpr uint32_t kRanksListedMax = 8;  // a longer list isn't readable
  if (candidates_ >= nodes_min || nodes_min - candidates_ > kRanksListedMax) return "";
  if (candidates_ == 0 || claiming_ != candidates_) return "";
  const std::vector<uint32_t> missing = table_.Unclaimed(nodes_min);
  // Other candidates claim another rank, or can't start so far.
  if (missing.size() != nodes_min - candidates_) return "";
  return absl::StrCat("node rank", missing.size() == 1 ? " " : "s ", absl::StrJoin(missing, ", "));
}

Node& Roster::Own(const Node& node) {
  Node* own = table_.FindByOrder(node.order);
  DDPRUN_CHECK(own == &node, "a node of another roster");
  return *own;
}

void Roster::Refresh(Node& node) {
  const bool could_start = CouldStart(node);
  if (could_start != node.counted) {
    DDPRUN_CHECK(could_start || candidates_ > 0, node.id.value());
    node.counted = could_start;
    could_start ? ++candidates_ : --candidates_;
    if (node.info.node_rank) could_start ? ++claiming_ : --claiming_;
  }
  const bool answers = could_start && node.answered;
  if (answers != node.counted_answering) {
    node.counted_answering = answers;
    answers ? ++answering_ : --answering_;
  }
  if (node.silent != node.counted_silent) {
    node.counted_silent = node.silent;
    node.silent ? ++silent_ : --silent_;
  }
  deadlines_.Set(node.order, node.deadline());
}

bool Roster::CouldStart(const Node& node) const {
  return !retired_ && node.stream && !node.draining && !node.group_rank &&
         node.cleaning == Generation() && table_.HoldsItsClaim(node);
}

std::string Roster::BrokenInvariant() const {
  std::string broken = table_.BrokenInvariant();
  if (!broken.empty()) return broken;
  uint32_t candidates = 0;
  uint32_t claiming = 0;
  uint32_t answering = 0;
  uint32_t silent = 0;
  size_t waiting = 0;
  for (const auto& [order, node] : nodes()) {
    broken = node.BrokenInvariant();
    if (!broken.empty()) return broken;
    if (node.counted != CouldStart(node)) return absl::StrCat(node.id.value(), ": miscounted");
    if (deadlines_.At(order) != node.deadline()) {
      return absl::StrCat(node.id.value(), ": a stale deadline");
    }
    if (!retired_ && node.lease_end.is_infinite()) return "a node without a lease";
    candidates += node.counted ? 1 : 0;
    claiming += node.counted && node.info.node_rank ? 1 : 0;
    answering += node.counted && node.answered ? 1 : 0;
    silent += node.silent ? 1 : 0;
    waiting += node.deadline().is_infinite() ? 0 : 1;
  }
  if (silent != silent_) return "the number of silent nodes is wrong";
  if (candidates != candidates_ || claiming != claiming_ || answering != answering_) {
    return "the number of candidates is wrong";
  }
  return waiting == deadlines_.size() ? "" : "a deadline of a node that is gone";
}

}  // namespace ddprun::rendezvous
