#ifndef DDPRUN_TESTS_SIM_FAULT_PLAN_H_
#define DDPRUN_TESTS_SIM_FAULT_PLAN_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/instant.h"
#include "base/rng.h"

// The faults of a run, as a list that is made before the run begins, so that it can be made
// shorter. Faults are left out, not draws of chance (as QuickCheck does): a draw that is gone would
// change all later ones.
namespace ddprun::sim {

enum class FaultKind {
  kKillService,   // detail: 0 = at once, else after so many effects
  kCrashAgent,    // and its workers' peers see it
  kCrashAndBack,  // detail: ms until it is started again
  kHangWorker,
  kFailWorker,  // detail: 0 = killed by somebody, 1 = SIGSEGV, 2 = an error with words
  kBreakStream,
  kCutServiceOff,  // from all nodes, for `lasts`
  // Cuts a node off for `lasts`; detail: 0 = to the agent, 1 = to the service, 2 = both, 3 = both,
  // and afterwards the stream is reset, which the agent learns late.
  kCut,
  kFreezeAgent,    // for `lasts`
  kStallService,   // for `lasts`
  kDrain,          // for `lasts`
  kSignalAgent,    // detail: the signal
  kRepeat,         // the agent's last event arrives a second time
  kIntrude,        // a stranger; detail: which (strangers.h)
  kFlap,           // the agent comes and goes for `lasts`; detail: ms between
  kLosePower,      // no stream is reset
  kKillAtVerdict,  // the service, at its first message of the verdict; detail: after so many
                   // effects
  // The service dies, and for `lasts` its record can't be read; detail: as RecordDamage.
  kDamageRecord,
  // Another service has the job, and the former one doesn't know; detail: 1 = it stands still for
  // `lasts`.
  kTakeOver,
};

inline constexpr size_t kFaultKinds = static_cast<size_t>(FaultKind::kTakeOver) + 1;

struct PlannedFault {
  Instant at;
  FaultKind kind = FaultKind::kCrashAgent;
  uint32_t node = 0;
  absl::Duration lasts = {};
  uint64_t detail = 0;
};

// All that a run depends on beyond its job: the same plan for the same seed gives the same run.
struct FaultPlan {
  std::vector<PlannedFault> faults;  // by time
  std::set<uint32_t> absent;         // nodes that never come
  // The seed of everything that is no fault: delays, lifetimes, restarts.
  uint64_t noise = 0;
  bool calm = false;  // messages take 1 ms
};

// Limits of the faults that are drawn.
struct FaultLimits {
  uint32_t nodes = 1;
  absl::Duration until;       // the last one
  uint64_t pause_ms = 1000;   // most between two
  bool service_dies = false;  // there is a journal
  bool only_service_dies = false;
};

FaultPlan DrawFaults(const FaultLimits& limits, Rng* rng);

// "12.345s n1: cut off towards the service for 2.5s"
std::string Describe(const PlannedFault& fault);

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_FAULT_PLAN_H_
