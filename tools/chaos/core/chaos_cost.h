#ifndef DDPRUN_TOOLS_CHAOS_CORE_CHAOS_COST_H_
#define DDPRUN_TOOLS_CHAOS_CORE_CHAOS_COST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"
#include "tools/chaos/core/chaos_plan.h"

namespace ddprun::launcher {

// One line of an event log (docs/EVENTS.md): of an agent, a service or `ddprun chaos` itself.
struct TimelineLine {
  Instant at;
  std::string who;                            // "agent:<node>", "service", "chaos:<host>"
  std::string event;                          // "worker_exit"
  std::map<std::string, std::string> fields;  // numbers as texts; "pid" among them

  // The field; "" = it isn't there.
  const std::string& Field(const std::string& name) const;
  // The field as a number; nullopt = there is none, or it isn't a number.
  std::optional<uint64_t> Number(const std::string& name) const;
};

// The cost of one injected fault. Durations are from the injection on; nullopt = it did not happen,
// or no line shows it.
struct FaultCost {
  size_t fault = 0;  // number in the plan, from 1
  uint64_t occurrence = 1;
  std::string kind;
  std::string victim;  // for people
  std::string node;    // where it was injected: the agent's id
  Instant at;
  uint64_t generation = 0;                 // the one that ran; 0 = none
  std::optional<absl::Duration> noticed;   // first sign of the fault in any line
  std::optional<absl::Duration> released;  // the last survivor has no workers of `generation`
  std::optional<absl::Duration> resumed;   // the last worker of the next generation was started
  std::optional<absl::Duration> training;  // the next generation marked its first training step
  std::optional<absl::Duration> over;      // the fault's own end: healed, continued, started again
  std::optional<absl::Duration> rejoined;  // an agent that was started again has workers
  std::optional<uint64_t> step_before;     // highest one that was marked in `generation`
  std::optional<uint64_t> step_after;      // first one that was marked after it
  std::optional<uint64_t> steps_lost;
  std::optional<uint64_t> restarts;  // charged for the end of `generation`
  std::string rule;                  // of the decision that followed
  std::string outcome;               // "restarted", "ridden out", "ended the job", "not over",
                                     // "not seen here"
  std::vector<std::string> missed;   // expectations, one sentence each
};

// An end of a generation that no fault of the plan explains.
struct OtherEnd {
  Instant at;
  uint64_t generation = 0;
  std::string reason;
  std::string rule;
};

struct ChaosReport {
  Instant began;  // the first line; times of day don't matter
  std::vector<FaultCost> faults;
  std::vector<OtherEnd> others;
  std::string outcome;  // of the job, as its verdict says; "" = unknown here
  std::string reason;
  std::string rule;
  uint64_t restarts = 0;            // charged in all
  std::vector<std::string> missed;  // expectations of the run as a whole
  bool judged = false;              // the plan has expectations
  bool kept() const;                // all of them
};

// How long after its end a fault may still have consequences.
inline constexpr absl::Duration kAfterEffect = absl::Seconds(30);

// Makes the report from the lines of all available logs, in any order.
// Params: never — numbers, from 1, of faults that should have been injected and never were.
// Pure; threads: any.
ChaosReport WorkOutCosts(std::vector<TimelineLine> lines, const Expectations& expect,
                         const std::vector<size_t>& never);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CHAOS_CORE_CHAOS_COST_H_
