#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/core/job.h"

// What must hold after every step.
namespace ddprun::rendezvous {

std::string Job::BrokenInvariant() const {
  std::string broken = BrokenCounts();
  if (broken.empty()) broken = BrokenRound();
  if (broken.empty()) broken = BrokenDeadlines();
  if (broken.empty() && ever_joined_ && phase_ != Phase::kEnded &&
      ledger_.Spent(now_).Total() != now_ - first_join_) {
    broken = "the ledger doesn't sum up to the job's time";
  }
  return broken;
}

std::string Job::BrokenCounts() const {
  uint32_t candidates = 0;
  uint32_t claiming = 0;
  size_t connected = 0;
  absl::flat_hash_set<std::string> ids;
  absl::flat_hash_set<uint64_t> streams;
  for (const auto& [order, node] : nodes_.nodes()) {
    if (!ids.insert(node.id.value()).second) return "two nodes with one id";
    if (node.stream && !streams.insert(node.stream->value()).second) return "a stream of two nodes";
    if (node.counted != CouldStart(node)) return absl::StrCat(node.id.value(), ": miscounted");
    if (node.group_rank && node.cleaning != Generation()) {
      return absl::StrCat(node.id.value(), ": a member that cleans up another generation");
    }
    candidates += node.counted ? 1 : 0;
    claiming += node.counted && node.info.node_rank ? 1 : 0;
    connected += node.stream ? 1 : 0;
  }
  if (candidates != candidates_ || claiming != claiming_candidates_) {
    return "the number of candidates is wrong";
  }
  if (connected != nodes_.connected()) return "the number of open streams is wrong";
  return "";
}

std::string Job::BrokenRound() const {
  const bool live = phase_ == Phase::kRunning || phase_ == Phase::kClosing;
  if (live != round_.has_value()) return "a live generation in the wrong phase";
  if (!round_) return "";
  if (round_->generation() != generation_) return "a live generation that is not the current one";
  uint32_t next_rank = 0;
  size_t awaited = 0;
  const auto& members = round_->members();
  for (uint32_t rank = 0; rank < members.size(); ++rank) {
    const RoundMember& member = members[rank];
    if (member.placement.base_rank != next_rank) return "ranks are not contiguous";
    next_rank += member.worker_count;
    awaited += member.settled ? 0 : 1;
    if (member.gone() && member.node_order != 0) return "a lost member with a node";
    if (member.node_order == 0) continue;
    const Node* node = nodes_.FindByOrder(member.node_order);
    if (node == nullptr || node->id != member.node_id) return "a member without its node";
    if (node->group_rank != rank) return "a node that doesn't know its rank";
    if (node->stream.has_value() != member.connected) return "a member's stream is miscounted";
    if (phase_ == Phase::kRunning && member.state != RoundMember::State::kRunning) {
      return "a member that stops while the generation runs";
    }
  }
  if (next_rank != round_->world_size()) return "the world is not the sum of its nodes";
  if (members.size() > spec_.nodes_max) return "more nodes than the job takes";
  if ((awaited == 0) != round_->settled()) return "the number of awaited members is wrong";
  if (phase_ == Phase::kClosing && round_->settled()) return "a settled round that is not closed";
  return "";
}

std::string Job::BrokenDeadlines() const {
  size_t waiting = 0;
  for (const auto& [order, node] : nodes_.nodes()) {
    const Instant earliest = std::min({node.lease_end, node.grace_end, node.stop_bound});
    if (deadlines_.At(order) != earliest)
      return absl::StrCat(node.id.value(), ": a stale deadline");
    waiting += earliest.is_infinite() ? 0 : 1;
    if (node.stream && !node.grace_end.is_infinite()) return "a grace beside an open stream";
    const bool asked = node.cleaning != Generation() ||
                       (phase_ == Phase::kClosing && node.group_rank &&
                        round_->member(*node.group_rank).state == RoundMember::State::kStopping);
    if (!asked && !node.stop_bound.is_infinite()) return "a stop bound where nothing stops";
    if (asked && node.stop_bound.is_infinite()) return "a stop without a bound";
    if (phase_ != Phase::kEnded && node.lease_end.is_infinite()) return "a node without a lease";
  }
  if (waiting != deadlines_.size()) return "a deadline of a node that is gone";
  if (nodes_.connected() > 0 && phase_ != Phase::kEnded && tick_due_.is_infinite()) {
    return "nodes without probes";
  }
  return "";
}

std::string Job::DebugString() const {
  static constexpr const char* kPhases[] = {"forming", "running", "closing", "ended"};
  std::string text = absl::StrCat("phase ", kPhases[static_cast<int>(phase_)], ", generation ",
                                  generation_.value(), ", candidates ", candidates_, ": ", reason_);
  for (const auto& [order, node] : nodes_.nodes()) {
    absl::StrAppend(&text, "\n  ", order, " ", node.id.value(), " ", StateOf(node), " rank ",
                    node.group_rank ? absl::StrCat(*node.group_rank) : "-", " lease ",
                    ToString(node.lease_end), " grace ", ToString(node.grace_end), " stop ",
                    ToString(node.stop_bound));
  }
  if (!round_) return text;
  for (const RoundMember& member : round_->members()) {
    absl::StrAppend(&text, "\n  member ", member.node_id.value(), " order ", member.node_order,
                    " state ", static_cast<int>(member.state), member.settled ? " settled" : "",
                    member.succeeded ? " succeeded" : "", member.connected ? "" : " away");
  }
  return text;
}

}  // namespace ddprun::rendezvous
