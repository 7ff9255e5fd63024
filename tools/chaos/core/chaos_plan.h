#ifndef DDPRUN_TOOLS_CHAOS_CORE_CHAOS_PLAN_H_
#define DDPRUN_TOOLS_CHAOS_CORE_CHAOS_PLAN_H_

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace ddprun::launcher {

// The kinds of faults; docs/CHAOS.md describes them.
enum class FaultKind {
  kWorkerKilled,
  kWorkerStopped,
  kAgentKilled,
  kAgentFrozen,
  kServiceKilled,
  kServiceStalled,
  kNetworkCut,
  kPacketLoss,
};

// "worker_killed": the name in plans and reports.
constexpr const char* FaultName(FaultKind kind) {
  constexpr const char* kNames[] = {"worker_killed", "worker_stopped", "agent_killed",
                                    "agent_frozen",  "service_killed", "service_stalled",
                                    "network_cut",   "packet_loss"};
  return kNames[static_cast<size_t>(kind)];
}
inline constexpr size_t kFaultKindCount = 8;

constexpr bool HitsWorker(FaultKind kind) {
  return kind == FaultKind::kWorkerKilled || kind == FaultKind::kWorkerStopped;
}
constexpr bool HitsService(FaultKind kind) {
  return kind == FaultKind::kServiceKilled || kind == FaultKind::kServiceStalled;
}
constexpr bool HitsNetwork(FaultKind kind) {
  return kind == FaultKind::kNetworkCut || kind == FaultKind::kPacketLoss;
}

// The victim of a fault. Faults of the service need none: they hit the node that hosts it.
struct Victim {
  bool random = false;                 // any worker, or the node of any worker
  std::optional<uint32_t> rank;        // of a worker, in the generation that runs
  std::optional<uint32_t> group_rank;  // of a node, in the generation that runs
  std::string host;                    // of a node
};

// A moment in the life of a generation on the node that watches it.
enum class Moment {
  kStarting,  // its workers are started, none has marked a training step
  kRunning,   // one has marked a training step
  kSaving,    // one has marked that it saves
};

// When a fault is due, for the first time and again.
struct Trigger {
  enum class Kind { kAt, kStep, kMoment };

  Kind kind = Kind::kAt;
  absl::Duration at = absl::ZeroDuration();  // kAt: after the beginning of the job
  bool each_generation = false;              // kAt: of each generation instead
  uint64_t step = 0;                         // kStep: a worker here has marked it, or a later one
  Moment moment = Moment::kRunning;          // kMoment: once in a generation
  absl::Duration every = absl::ZeroDuration();  // kAt of the job: again and again; zero = once
  uint64_t every_steps = 0;                     // kStep: the same
  uint32_t times = 1;                           // 0 = until the job ends
};

enum class Direction { kBoth, kIn, kOut };

struct FaultPlan {
  FaultKind kind = FaultKind::kWorkerKilled;
  int line = 1;  // of the file
  Victim victim;
  Trigger trigger;
  int signal = SIGKILL;                              // kWorkerKilled
  absl::Duration lasts = absl::InfiniteDuration();   // kinds that end; infinite = for good
  absl::Duration rejoin = absl::InfiniteDuration();  // kAgentKilled; infinite = never
  Direction direction = Direction::kBoth;            // kNetworkCut
  double loss_percent = 0;                           // kPacketLoss, in (0, 100]
};

// Limits that every injected fault must stay within. nullopt = no limit.
struct Expectations {
  std::optional<absl::Duration> noticed;
  std::optional<absl::Duration> released;
  std::optional<absl::Duration> resumed;
  std::optional<absl::Duration> training;
  std::optional<uint64_t> steps_lost;
  std::optional<uint64_t> restarts;  // charged for all faults together

  bool any() const {
    return noticed.has_value() || released.has_value() || resumed.has_value() ||
           training.has_value() || steps_lost.has_value() || restarts.has_value();
  }
};

// A plan, checked and complete. Made by tools/chaos.
struct ChaosPlan {
  uint64_t seed = 0;  // of random victims; the same on every node, so that they agree
  std::vector<FaultPlan> faults;
  Expectations expect;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CHAOS_CORE_CHAOS_PLAN_H_
