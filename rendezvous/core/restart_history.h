#ifndef DDPRUN_RENDEZVOUS_CORE_RESTART_HISTORY_H_
#define DDPRUN_RENDEZVOUS_CORE_RESTART_HISTORY_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun::rendezvous {

// Counts over the generations that have ended (R7).
struct RestartHistory {
  uint32_t restart_count = 0;  // failures so far that restarted the job; never goes down
  uint32_t restarts_charged =
      0;  // those of restart_count that were not given back (restart window)
  uint32_t membership_changes = 0;
  uint32_t quick_failures = 0;      // in a row
  uint32_t same_failures = 0;       // how many of the latest quick failures were alike
  std::string last_failure;         // FailureKind() of the latest quick failure
  uint32_t without_progress = 0;    // failed generations in a row
  std::optional<uint64_t> highest;  // step that the job has reached

  friend bool operator==(const RestartHistory&, const RestartHistory&) = default;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_RESTART_HISTORY_H_
