#ifndef DDPRUN_TOOLS_CHAOS_CORE_CHAOS_SCHEDULE_H_
#define DDPRUN_TOOLS_CHAOS_CORE_CHAOS_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/instant.h"
#include "base/progress_page.h"
#include "tools/chaos/core/chaos_plan.h"

namespace ddprun::launcher {

// One node's current view of its job.
struct ChaosView {
  struct Worker {
    bool runs = false;
    ProgressPhase phase = ProgressPhase::kNone;
    uint64_t step = 0;  // marked last
  };

  std::string host;                  // this machine's name
  std::optional<Instant> job_began;  // the first workers were started here
  uint64_t generation = 0;           // the one that runs here; 0 = none
  Instant generation_began;
  // How many generations have begun here. Differs from `generation`, which starts at 1 again if the
  // job begins anew after the loss of its service.
  uint64_t begun = 0;
  uint32_t group_rank = 0;
  uint32_t base_rank = 0;  // global rank of the first worker here
  uint32_t world = 0;      // workers of the job; 0 = no generation so far
  bool agent_runs = false;
  bool service_here = false;
  std::vector<Worker> workers;  // by local rank
};

// One fault that is to be injected here and now.
struct Injection {
  size_t fault = 0;              // index in the plan
  uint32_t occurrence = 0;       // from 0
  std::optional<uint32_t> rank;  // of the worker to hit

  friend bool operator==(const Injection&, const Injection&) = default;
};

// The nodes that a job has had, by the lines of the service on this node.
struct NodesSeen {
  std::set<std::string> hosts;  // empty = the service is on another node
  uint64_t most = 0;            // nodes of the largest generation
};

// Whether the victim is a node that the job never had.
bool IsNoNode(const Victim& victim, const NodesSeen& nodes);

// Decides when this node injects which fault of the plan. Every node of a job has a schedule of the
// same plan. Victims follow only from the plan and the ranks, so that nodes agree without
// communication: a fault with a victim on another node counts as injected here, too. If a victim
// doesn't exist (the job has fewer workers now), the schedule waits for it. Pure; one thread.
class ChaosSchedule {
 public:
  explicit ChaosSchedule(ChaosPlan plan);

  // The injections that are due; at most one of each fault.
  std::vector<Injection> Due(Instant now, const ChaosView& view);
  // When, after `now`, the next fault becomes due by time alone; infinite = none. Doesn't include
  // faults that wait for their victim, because the victim's start is an event of its own.
  Instant NextTime(Instant now, const ChaosView& view) const;
  // Whether a fault waits for a mark, so that progress pages must be read.
  bool WaitsForMarks() const;
  // Faults, by index in the plan, that were never due, or had no victim, here or, as far as this
  // node knows, elsewhere.
  std::vector<size_t> NeverDue() const;

  const ChaosPlan& plan() const { return plan_; }

 private:
  struct State {
    uint32_t occurrences = 0;  // injected so far, here or elsewhere
    uint64_t last_begun = 0;   // ChaosView::begun at the last one; for once a generation
    Instant last;              // time of the last one
    bool over = false;
  };
  enum class Place { kHere, kElsewhere, kNowhere };

  bool IsDue(const FaultPlan& fault, const State& state, Instant now, const ChaosView& view) const;
  Instant DueTime(const FaultPlan& fault, const State& state, const ChaosView& view) const;
  Place Find(size_t index, const ChaosView& view, Injection* injection) const;

  ChaosPlan plan_;
  std::vector<State> states_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CHAOS_CORE_CHAOS_SCHEDULE_H_
