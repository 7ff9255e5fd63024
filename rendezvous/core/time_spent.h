#ifndef DDPRUN_RENDEZVOUS_CORE_TIME_SPENT_H_
#define DDPRUN_RENDEZVOUS_CORE_TIME_SPENT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>

#include "absl/time/time.h"

// How the time of a job is spent (docs/GOODPUT.md).
namespace ddprun::rendezvous {

enum class TimeCause : uint8_t {
  kRendezvous,  // waiting for nodes, or a pause before a restart
  kStartUp,     // from the first assignment to the first training step
  kRestart,     // start of a later generation, and end of the one before
  kTraining,    // steps done for the first time
  kRework,      // steps done again because they were lost
  kDataWait,    // training waits for its next batch
  kCheckpoint,
  kEvaluation,
  kIdle,       // the program waits on purpose
  kEnding,     // the program has marked that it is done, or has ended and waits for other nodes
  kDetection,  // from a fault until the service knew of it
  kUnmarked,   // all the time of workers that mark nothing
  kOther,
};
inline constexpr size_t kTimeCauses = static_cast<size_t>(TimeCause::kOther) + 1;

// "data_wait"; for JSON and metrics.
constexpr const char* TimeCauseName(TimeCause cause) {
  constexpr const char* kNames[] = {"rendezvous", "start_up",   "restart",    "training", "rework",
                                    "data_wait",  "checkpoint", "evaluation", "idle",     "ending",
                                    "detection",  "unmarked",   "other"};
  static_assert(std::size(kNames) == kTimeCauses);
  return kNames[static_cast<size_t>(cause)];
}

// Time by cause; no value is negative.
struct TimeSpent {
  std::array<absl::Duration, kTimeCauses> by{};

  absl::Duration& operator[](TimeCause cause) { return by[static_cast<size_t>(cause)]; }
  absl::Duration operator[](TimeCause cause) const { return by[static_cast<size_t>(cause)]; }
  absl::Duration Total() const {
    return std::accumulate(by.begin(), by.end(), absl::ZeroDuration());
  }
  TimeSpent& operator+=(const TimeSpent& other) {
    for (size_t i = 0; i < kTimeCauses; ++i) by[i] += other.by[i];
    return *this;
  }

  friend bool operator==(const TimeSpent&, const TimeSpent&) = default;
};

// How the workers of one node spent a generation, since they were assigned.
struct NodeTime {
  TimeSpent spent;  // until the latest mark of any of them
  // Time since that mark; counts as detection if a fault had happened that the service didn't know
  // of.
  absl::Duration last;
  TimeCause last_in = TimeCause::kUnmarked;

  friend bool operator==(const NodeTime&, const NodeTime&) = default;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_TIME_SPENT_H_
