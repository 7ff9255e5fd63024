#ifndef DDPRUN_RENDEZVOUS_CORE_VIEWS_H_
#define DDPRUN_RENDEZVOUS_CORE_VIEWS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/node_info.h"
#include "rendezvous/core/time_spent.h"

// What status calls show of a job.
namespace ddprun::rendezvous {

struct NodeView {
  NodeId node_id;
  NodeInfo info;
  std::string state;  // proto NodeStatus.state
  std::optional<uint32_t> group_rank;
  absl::Duration silent;
  // Progress words of its workers (docs/PROGRESS.md) in the live generation, by local rank; empty =
  // it has none, or hasn't reported any.
  std::vector<uint64_t> progress;
  absl::Duration step_time;  // as in Renewal
  absl::Duration progress_age;
  uint32_t base_rank = 0;  // global rank of its local rank 0; only with a group rank
  std::vector<GpuUse> gpus;
  absl::Duration gpus_age;
  std::optional<WarmUse> warm;               // as in Renewal
  std::map<uint32_t, HoldUp> hold_ups;       // by local rank; as of progress_age ago
  std::optional<uint64_t> checkpoint_bytes;  // as in Renewal
};

// A machine that was drained, and may not join (proto DrainedNode).
struct DrainedNode {
  NodeId node_id;
  std::string hostname;
  std::string address;
  std::string reason;

  friend bool operator==(const DrainedNode&, const DrainedNode&) = default;
};

struct JobView {
  JobSpec spec;
  std::string phase;  // proto JobStatus.phase
  std::string reason;
  Generation generation;
  uint32_t restart_count = 0;
  uint32_t restarts_charged = 0;     // those of restart_count that were not given back
  absl::Duration age;                // since the first Join
  std::vector<NodeView> nodes;       // by group rank, then join order
  std::vector<DrainedNode> drained;  // the latest last
  TimeSpent spent;                   // since the first Join
  std::optional<TimeSpent> counted;  // see Ledger
  uint64_t recoveries = 0;           // how often the service was started again
  std::string record;                // where the record is kept, for people; set by the shell
  std::string record_lost;           // why the job depends on its service; "" = it doesn't
};

struct GenerationView {
  Generation generation;
  uint32_t world_size = 0;
  uint32_t nodes = 0;
  std::string reason;  // as in Assignment
  std::string rule;
  Instant began;
  Instant ended = Instant::Infinite();  // when its end was decided
  std::string end_reason = {};
  std::optional<uint64_t> first_step = {};  // lowest one seen of its workers; nullopt = none marks
  std::optional<uint64_t> last_step = {};
  std::optional<WarmStart> warm = {};  // nullopt = no node has reported warm starts
};

// Finds the node with this node id, else host name, else group rank. Errors: NOT_FOUND: no node has
// this name; the text lists those that exist. INVALID_ARGUMENT: several nodes of the job are on
// this host; the text lists them.
absl::StatusOr<const NodeView*> FindNode(const JobView& view, const std::string& name);

// Finds the drained machine with this node id, else host name. Errors: as for FindNode.
absl::StatusOr<const DrainedNode*> FindDrained(const JobView& view, const std::string& name);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_VIEWS_H_
