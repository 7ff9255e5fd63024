#include "tests/sim/fault_plan.h"

#include <csignal>

#include "absl/strings/str_cat.h"
#include "tests/sim/strangers.h"

namespace ddprun::sim {

namespace {

absl::Duration Ms(uint64_t ms) { return absl::Milliseconds(static_cast<int64_t>(ms)); }

// How often each kind is drawn, in percent.
struct Share {
  FaultKind kind;
  uint32_t percent;
};

constexpr Share kShares[] = {
    {FaultKind::kCrashAgent, 15},  {FaultKind::kHangWorker, 5},    {FaultKind::kFailWorker, 10},
    {FaultKind::kBreakStream, 14}, {FaultKind::kCutServiceOff, 3}, {FaultKind::kCut, 16},
    {FaultKind::kFreezeAgent, 10}, {FaultKind::kStallService, 8},  {FaultKind::kDrain, 2},
    {FaultKind::kSignalAgent, 4},  {FaultKind::kCrashAndBack, 3},  {FaultKind::kRepeat, 3},
    {FaultKind::kIntrude, 4},      {FaultKind::kFlap, 1},          {FaultKind::kLosePower, 2},
};

FaultKind DrawKind(Rng* rng) {
  uint64_t left = rng->Below(100);
  for (const Share& share : kShares) {
    if (left < share.percent) return share.kind;
    left -= share.percent;
  }
  return FaultKind::kCrashAgent;
}

// The service dies at once, perhaps while it writes; or some effects later, so between any two
// effects of a decision.
uint64_t DrawDeath(Rng* rng) {
  return rng->Chance(40) ? 0 : 1 + rng->Below(rng->Chance(50) ? 3 : 40);
}

uint64_t DrawDetail(FaultKind kind, Rng* rng) {
  if (kind == FaultKind::kKillService) return DrawDeath(rng);
  if (kind == FaultKind::kFailWorker) return rng->Chance(25) ? 0 : 1 + rng->Below(2);
  if (kind == FaultKind::kCut) return rng->Below(4);
  if (kind == FaultKind::kDamageRecord) return 1 + rng->Below(2);
  if (kind == FaultKind::kTakeOver) return rng->Below(2);
  if (kind == FaultKind::kIntrude) return rng->Below(kStrangers);
  if (kind == FaultKind::kFlap) return 50 + rng->Below(1000);
  if (kind == FaultKind::kSignalAgent) {
    if (rng->Chance(2)) return SIGINT;
    return rng->Chance(50) ? SIGUSR2 : SIGTERM;
  }
  // The agent is back before its loss may be noticed, but not before its keeper is done.
  return kind == FaultKind::kCrashAndBack ? 70 + rng->Below(200) : 0;
}

std::string What(const PlannedFault& fault) {
  const std::string lasts = absl::StrCat(" for ", absl::FormatDuration(fault.lasts));
  switch (fault.kind) {
    case FaultKind::kKillService:
      return fault.detail == 0 ? "is killed"
                               : absl::StrCat("is killed ", fault.detail - 1, " effects later");
    case FaultKind::kCrashAgent:
      return "agent is killed";
    case FaultKind::kCrashAndBack:
      return absl::StrCat("agent is killed and started again after ", fault.detail, "ms");
    case FaultKind::kHangWorker:
      return "a worker hangs";
    case FaultKind::kFailWorker:
      return fault.detail == 0
                 ? "a worker is killed from outside"
                 : absl::StrCat("a worker fails by ", fault.detail == 1 ? "SIGSEGV" : "an error");
    case FaultKind::kBreakStream:
      return "stream breaks";
    case FaultKind::kCutServiceOff:
      return absl::StrCat("is cut off from all nodes", lasts);
    case FaultKind::kCut:
      return absl::StrCat("is cut",
                          fault.detail == 0   ? " (to the agent)"
                          : fault.detail == 1 ? " (to the service)"
                                              : "",
                          lasts, fault.detail == 3 ? ", then its stream is reset" : "");
    case FaultKind::kFreezeAgent:
      return absl::StrCat("agent is frozen", lasts);
    case FaultKind::kStallService:
      return absl::StrCat("stalls", lasts);
    case FaultKind::kDrain:
      return absl::StrCat("is drained", lasts);
    case FaultKind::kSignalAgent:
      return absl::StrCat("agent gets signal ", fault.detail);
    case FaultKind::kRepeat:
      return "its last event comes a second time";
    case FaultKind::kIntrude:
      return absl::StrCat("a stranger comes, of kind ", fault.detail);
    case FaultKind::kFlap:
      return absl::StrCat("its agent comes and goes every ", fault.detail, "ms", lasts);
    case FaultKind::kLosePower:
      return "loses its power";
    case FaultKind::kKillAtVerdict:
      return "is to be killed while it sends the verdict";
    case FaultKind::kTakeOver:
      return absl::StrCat("is replaced by another one",
                          fault.detail == 1 ? absl::StrCat(", and stands still", lasts) : "");
    case FaultKind::kDamageRecord:
      return absl::StrCat("is killed, and its record ",
                          fault.detail == 1   ? "is cut off"
                          : fault.detail == 2 ? "has a wrong bit"
                                              : "is gone",
                          lasts);
  }
  return "";
}

bool IsOfTheService(FaultKind kind) {
  return kind == FaultKind::kKillService || kind == FaultKind::kCutServiceOff ||
         kind == FaultKind::kStallService || kind == FaultKind::kKillAtVerdict ||
         kind == FaultKind::kDamageRecord || kind == FaultKind::kTakeOver;
}

}  // namespace

FaultPlan DrawFaults(const FaultLimits& limits, Rng* rng) {
  FaultPlan plan{.faults = {}, .absent = {}, .noise = rng->Next()};
  Instant at;
  uint32_t asked = 0;
  while (true) {
    at = at + Ms(20 + rng->Below(limits.pause_ms));
    if (at >= Instant() + limits.until) return plan;
    const bool dies = limits.only_service_dies || (limits.service_dies && rng->Chance(15));
    const bool may_change = dies && !limits.only_service_dies;
    const bool damaged = may_change && rng->Chance(5);
    const bool replaced = may_change && !damaged && rng->Chance(20);
    PlannedFault fault{.at = at,
                       .kind = replaced  ? FaultKind::kTakeOver
                               : damaged ? FaultKind::kDamageRecord
                               : dies    ? FaultKind::kKillService
                                         : DrawKind(rng),
                       .node = static_cast<uint32_t>(rng->Below(limits.nodes)),
                       .lasts = Ms(rng->Below(rng->Chance(50) ? 1000 : 8000))};
    // When the last node leaves, the job ends, and the rest of the run tests nothing.
    const bool leaves = fault.kind == FaultKind::kSignalAgent;
    if (leaves && (asked + 1 >= limits.nodes) && !rng->Chance(10)) continue;
    asked += leaves ? 1 : 0;
    fault.detail = DrawDetail(fault.kind, rng);
    plan.faults.push_back(fault);
  }
}

std::string Describe(const PlannedFault& fault) {
  return absl::StrCat(ToString(fault.at), " ",
                      IsOfTheService(fault.kind) ? "the service" : absl::StrCat("n", fault.node),
                      ": ", What(fault));
}

}  // namespace ddprun::sim
