#include "rendezvous/core/views.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kNamesShownMax = 8;

// "a (host0), b (host1), …", or a text that there are none.
template <typename Nodes, typename Name>
std::string NamesText(const Nodes& nodes, Name name) {
  std::vector<std::string> names;
  for (const auto& node : nodes) {
    if (names.size() == kNamesShownMax) break;
    names.push_back(name(node));
  }
  if (names.empty()) return "none";
  return absl::StrCat(absl::StrJoin(names, ", "), names.size() < nodes.size() ? ", …" : "");
}

std::string NodeName(const NodeView& node) {
  return absl::StrCat(node.node_id.value(), " (", node.info.hostname,
                      node.group_rank ? absl::StrCat(", group rank ", *node.group_rank) : "", ")");
}

}  // namespace

absl::StatusOr<const NodeView*> FindNode(const JobView& view, const std::string& name) {
  std::vector<const NodeView*> on_host;
  for (const NodeView& node : view.nodes) {
    if (node.node_id.value() == name) return &node;
    if (node.info.hostname == name) on_host.push_back(&node);
  }
  if (on_host.size() == 1) return on_host.front();
  if (on_host.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "host ", name, " has ", on_host.size(), " nodes of this job; name one of them: ",
        NamesText(on_host, [](const NodeView* node) { return node->node_id.value(); })));
  }
  uint32_t rank = 0;
  if (absl::SimpleAtoi(name, &rank)) {
    const auto found = std::find_if(view.nodes.begin(), view.nodes.end(),
                                    [&](const NodeView& node) { return node.group_rank == rank; });
    if (found != view.nodes.end()) return &*found;
  }
  return absl::NotFoundError(
      absl::StrCat("no node of the job has the id, host name or group rank '", name,
                   "'; its nodes: ", NamesText(view.nodes, NodeName)));
}

absl::StatusOr<const DrainedNode*> FindDrained(const JobView& view, const std::string& name) {
  for (const DrainedNode& node : view.drained) {
    if (node.node_id.value() == name) return &node;
  }
  for (const DrainedNode& node : view.drained) {
    if (node.hostname == name) return &node;
  }
  return absl::NotFoundError(absl::StrCat(
      "no machine with the node id or host name '", name,
      "' was drained; those that were: ", NamesText(view.drained, [](const DrainedNode& node) {
        return absl::StrCat(node.node_id.value(), " (", node.hostname, ")");
      })));
}

}  // namespace ddprun::rendezvous
