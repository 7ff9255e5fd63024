#ifndef DDPRUN_LAUNCHER_CHAOS_CORE_CHAOS_SCHEDULE_H_
#define DDPRUN_LAUNCHER_CHAOS_CORE_CHAOS_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/instant.h"
#include "base/progress_page.h"
#include "launcher/chaos/core/chaos_plan.h"

namespace ddprun::launcher {

// What one node knows of its job now.
struct ChaosView {
  struct Worker {
    bool runs = false;
    ProgressPhase phase = ProgressPhase::kNone;
    uint64_t step = 0;  // marked last
  };

  std::string host;                  // this machine's name
  std::optional<Instant> job_began;  // the first workers were started here
  uint64_t generation = 0;           // that runs here; 0 = none
  Instant generation_began;
  // How many have begun here: a job that begins anew after the loss of its service counts its
  // generations from 1 again.
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
  std::optional<uint32_t> rank;  // of the worker that is hit

  friend bool operator==(const Injection&, const Injection&) = default;
};

// Decides when this node injects which fault of the plan. Every node of a job has one of the same
// plan; who is hit follows from the plan and the ranks alone, so that they agree without a word:
// an occurrence whose victim is elsewhere is over here too. A victim that is nowhere (the job has
// fewer workers now) is waited for.
// Pure; one thread.
class ChaosSchedule {
 public:
  explicit ChaosSchedule(ChaosPlan plan);

  // What is due. At most one occurrence of each fault at a time.
  std::vector<Injection> Due(Instant now, const ChaosView& view);
  // When, after `now`, a fault becomes due by time alone; infinite = none does. One that is due and
  // waits for its victim is not among them: what brings the victim is an event of its own.
  Instant NextTime(Instant now, const ChaosView& view) const;
  // A fault waits for a mark, so that pages of progress must be looked at.
  bool WaitsForMarks() const;
  // Faults, by index in the plan, that were never due, or whose victim was never there: neither
  // here nor, as far as this node knows, elsewhere.
  std::vector<size_t> NeverDue() const;

  const ChaosPlan& plan() const { return plan_; }

 private:
  struct State {
    uint32_t occurrences = 0;  // that are over, here or elsewhere
    uint64_t last_begun = 0;   // of the last one; for those that come once in each
    Instant last;              // when it was
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

#endif  // DDPRUN_LAUNCHER_CHAOS_CORE_CHAOS_SCHEDULE_H_
