#include "rendezvous/core/members/drain_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {
namespace {

std::string InBrackets(const std::string& reason) {
  return reason.empty() ? "" : absl::StrCat(" (", reason, ")");
}

}  // namespace

void DrainList::Add(DrainedNode node) {
  DDPRUN_CHECK(!node.node_id.value().empty(), "a drained node without a name");
  if (nodes_.size() == kDrainedMax) nodes_.erase(nodes_.begin());
  nodes_.push_back(std::move(node));
  DDPRUN_CHECK(nodes_.size() <= kDrainedMax, "the list is beyond its bound");
}

bool DrainList::Undo(const NodeId& node) {
  return std::erase_if(nodes_, [&](const DrainedNode& each) { return each.node_id == node; }) > 0;
}

const DrainedNode* DrainList::Find(const NodeId& node) const {
  const auto found = std::find_if(nodes_.rbegin(), nodes_.rend(),
                                  [&](const DrainedNode& each) { return each.node_id == node; });
  return found == nodes_.rend() ? nullptr : &*found;
}

absl::Status DrainList::CheckMachine(const std::string& hostname,
                                     const std::string& address) const {
  for (const DrainedNode& drained : nodes_) {
    if (drained.hostname != hostname || drained.address != address) continue;
    return absl::AbortedError(absl::StrCat("node ", drained.node_id.value(), " was drained",
                                           InBrackets(drained.reason),
                                           ", so this machine may not join. To let it in again: "
                                           "ddprun drain --undo '",
                                           drained.node_id.value(), "'"));
  }
  return absl::OkStatus();
}

std::string DrainList::BrokenInvariant() const {
  if (nodes_.size() > kDrainedMax) return "more drained machines than are remembered";
  const bool named = std::all_of(nodes_.begin(), nodes_.end(), [](const DrainedNode& each) {
    return !each.node_id.value().empty();
  });
  return named ? "" : "a drained node without a name";
}

}  // namespace ddprun::rendezvous
