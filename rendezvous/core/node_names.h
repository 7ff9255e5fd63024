#ifndef DDPRUN_RENDEZVOUS_CORE_NODE_NAMES_H_
#define DDPRUN_RENDEZVOUS_CORE_NODE_NAMES_H_

#include <string>

#include "absl/status/statusor.h"
#include "rendezvous/core/views.h"

namespace ddprun::rendezvous {

// The node that people mean: its node id, else its host name, else the group rank that it has.
// Errors: NOT_FOUND: none is called so, the text names those that are there. INVALID_ARGUMENT: a
// host that has several nodes of the job; the text names them.
absl::StatusOr<const NodeView*> FindNode(const JobView& view, const std::string& name);

// The same among the machines that were drained: node id, else host name.
absl::StatusOr<const DrainedNode*> FindDrained(const JobView& view, const std::string& name);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_NODE_NAMES_H_
