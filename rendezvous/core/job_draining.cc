#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/job.h"

// Nodes that are asked to leave, and stay away (R15).
namespace ddprun::rendezvous {
namespace {

std::string InBrackets(const std::string& reason) {
  return reason.empty() ? "" : absl::StrCat(" (", reason, ")");
}

}  // namespace

void Job::On(const DrainRequested& event) {
  if (phase_ == Phase::kEnded) return;
  if (event.undo) return Undrain(event.node);
  Node* node = nodes_.FindById(event.node);
  if (node == nullptr || node->draining) return;
  node->draining = true;
  if (drained_.size() == kDrainedMax) drained_.erase(drained_.begin());
  drained_.push_back({.node_id = node->id,
                      .hostname = node->info.hostname,
                      .address = node->info.address,
                      .reason = event.reason});
  AddNote("drain", {{"node", node->id.value()}, {"reason", event.reason}});
  Refresh(*node);
  SendDrain(*node);
}

// What was said when it was drained last; null = it wasn't.
const DrainedNode* Job::FindDrained(const NodeId& node) const {
  const auto found = std::find_if(drained_.rbegin(), drained_.rend(),
                                  [&](const DrainedNode& each) { return each.node_id == node; });
  return found == drained_.rend() ? nullptr : &*found;
}

void Job::SendDrain(const Node& node) {
  const DrainedNode* drained = FindDrained(node.id);
  SendTo(node, Drain{drained == nullptr ? "" : drained->reason});
}

// A node that is leaving leaves all the same.
void Job::Undrain(const NodeId& node) {
  const size_t erased =
      std::erase_if(drained_, [&](const DrainedNode& each) { return each.node_id == node; });
  if (erased > 0) AddNote("undrain", {{"node", node.value()}});
}

// Errors: ABORTED: another agent of a machine that was drained. An address tells apart machines
// that have one name after the other, as pods do.
absl::Status Job::CheckDrained(const AgentMessage& message, const Join& join) const {
  const Node* self = nodes_.FindById(message.node_id);
  const bool is_known = (self != nullptr && self->incarnation == message.incarnation) ||
                        nodes_.FindDeparted(message.incarnation) != nullptr;
  if (is_known) return absl::OkStatus();
  for (const DrainedNode& drained : drained_) {
    if (drained.hostname != join.node.hostname || drained.address != join.node.address) continue;
    return absl::AbortedError(absl::StrCat("node ", drained.node_id.value(), " was drained",
                                           InBrackets(drained.reason),
                                           ", so this machine may not join. To let it in again: "
                                           "ddprun drain --undo '",
                                           drained.node_id.value(), "'"));
  }
  return absl::OkStatus();
}

}  // namespace ddprun::rendezvous
