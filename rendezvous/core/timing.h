#ifndef DDPRUN_RENDEZVOUS_CORE_TIMING_H_
#define DDPRUN_RENDEZVOUS_CORE_TIMING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace ddprun::rendezvous {

// The service's time constants that no flag changes. docs/PROTOCOL.md names them in its rules, and
// has those that flags change in "Times".

// Time beyond its stop grace in which a node has to answer StopWorkers; after that it is unclean
// (R3).
inline constexpr absl::Duration kStopSlack = absl::Seconds(5);

// Least time in which a known node may come back to a service that was started again: several of
// the pauses after which agents look for the service (R5, R10).
inline constexpr absl::Duration kRecoveryLease = absl::Seconds(2);
// Least time in which a node may come back if its own service has been silent for a lease, from
// when all others are back: if its agent lives, it hears of the new service at the same moment.
// Meanwhile a quarter of this time is enough for a stall (R4).
inline constexpr absl::Duration kVanishedLease = absl::Milliseconds(100);

// How long leases aren't judged while no node at all is heard. Longer than agents wait for their
// service, so that the service is never what ends their workers (R4, R5).
inline constexpr absl::Duration kIsolationMax = absl::Seconds(120);

// Longest wait for a silent member that the others could go on without: longer than the failover of
// a switch or the migration of a machine (R4).
inline constexpr absl::Duration kSilenceMax = absl::Seconds(60);

// How long streams may stay open after the verdict.
inline constexpr absl::Duration kFarewell = absl::Seconds(2);

// How long after the first agent the last one may join, if a scheduler starts them at the same time
// (R8). Longer than a file server or a container's image delays one of them.
inline constexpr absl::Duration kAgentsStart = absl::Seconds(60);

// A generation that lasted this long has made progress, if the program marks no steps. A generation
// with progress resets the count of membership changes only if it lasted this long (R7).
inline constexpr absl::Duration kProgressUptime = absl::Seconds(60);

// A failure that comes sooner after the assignment is a failed start (R7).
inline constexpr absl::Duration kQuickFailure = absl::Seconds(10);

// How many kills from outside in a row, without progress, are followed by a free restart for the
// workers that keep their processes (R7).
inline constexpr uint32_t kSurvivorsRestartsInARow = 3;

// From this number of equal failed starts in a row on, each decision says how many there were (R7).
inline constexpr uint32_t kSameFailuresNamed = 3;

// Pause after the second failed start in a row; each further one doubles it (R7).
inline constexpr absl::Duration kFirstBackoff = absl::Milliseconds(500);

// How long a generation must have run before it ends for newcomers if the last growth gained
// nothing. Each further such growth doubles it, up to kGrowthUptimeMax (R3).
inline constexpr absl::Duration kGrowthUptime = absl::Seconds(10);
inline constexpr absl::Duration kGrowthUptimeMax = absl::Hours(1);

// How long after the last success of a node those that still run are named (R8).
inline constexpr absl::Duration kOthersEndedAfter = absl::Seconds(30);

// Failures of two nodes that arrive within this time count as simultaneous (R12): delays of
// detection, loops and networks are of this size.
inline constexpr absl::Duration kArrivalTie = absl::Milliseconds(50);

// Pause between two probes: a fifth of the lease, at most 1 s and at least 50 ms; with kLeaseMin at
// most a quarter of the lease, so that one lost probe doesn't end it (R4).
inline absl::Duration ProbeInterval(absl::Duration lease) {
  return std::clamp(lease / 5, absl::Milliseconds(50), absl::Seconds(1));
}

// How many nodes a job probes in a second at most: a tenth of a processor with all that an answer
// costs (docs/SCALE.md). With more nodes the pause between two probes grows.
inline constexpr int64_t kProbesASecond = 1024;
// A lease that is longer because of many nodes holds this many pauses.
inline constexpr int64_t kProbesInLease = 5;

// How often a job's nodes are probed, and how long the answer counts (R4).
struct ProbePace {
  // The pace of a job with few nodes. Implicit, because the lease determines it.
  ProbePace(absl::Duration of_lease)  // NOLINT(google-explicit-constructor)
      : interval(ProbeInterval(of_lease)), lease(of_lease) {}
  // Params: nodes: how many are to be probed.
  ProbePace(absl::Duration of_lease, size_t nodes)
      : interval(std::max(ProbeInterval(of_lease),
                          absl::Seconds(1) * static_cast<int64_t>(nodes) / kProbesASecond)),
        lease(std::max(
            of_lease, interval > ProbeInterval(of_lease) ? kProbesInLease * interval : of_lease)) {}

  // The longest pause of the service that isn't a stall (R4).
  absl::Duration pause() const { return lease / 4; }

  absl::Duration interval;
  absl::Duration lease;  // at least four intervals
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_TIMING_H_
