#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_EXIT_BARRIER_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_EXIT_BARRIER_H_

#include <cstdint>
#include <string>

#include "base/instant.h"
#include "launcher/core/agent_settings.h"

namespace ddprun::launcher {

// How long a node that is done waits for the others (R8): for --exit_barrier_timeout, and if it has
// the service or rank 0's store, for as long as the others need them.
//
//   open ─Begin─► waiting ─OnTimer─► open, and the node leaves
//     ▲              │ OnAssigned, Cancel
//     └──────────────┘
//
// Pure; one thread.
class ExitBarrier {
 public:
  explicit ExitBarrier(ExitBarrierSettings settings) : settings_(settings) {}

  // A generation begins, in which this node has that group rank.
  void OnAssigned(uint32_t group_rank);
  // All workers of this node have ended well.
  void Begin(Instant now, bool hosts_service);
  // The workers have to run again.
  void Cancel() { end_ = Instant::Infinite(); }
  // True, once: the timeout is over.
  bool OnTimer(Instant now);
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const { return end_; }

  // Why the node leaves, for people.
  std::string Why() const;

 private:
  ExitBarrierSettings settings_;
  uint32_t group_rank_ = 0;            // of the newest generation
  Instant end_ = Instant::Infinite();  // finite only while waiting, and never of group rank 0
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_EXIT_BARRIER_H_
