#ifndef DDPRUN_RENDEZVOUS_CORE_NODE_NAMES_H_
#define DDPRUN_RENDEZVOUS_CORE_NODE_NAMES_H_

#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/core/views.h"

namespace ddprun::rendezvous {

// Finds the node with this node id, else host name, else group rank. Errors: NOT_FOUND: no node has
// this name; the text lists those that exist. INVALID_ARGUMENT: several nodes of the job are on
// this host; the text lists them.
absl::StatusOr<const NodeView*> FindNode(const JobView& view, const std::string& name);

// Finds the drained machine with this node id, else host name. Errors: as for FindNode.
absl::StatusOr<const DrainedNode*> FindDrained(const JobView& view, const std::string& name);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_NODE_NAMES_H_
