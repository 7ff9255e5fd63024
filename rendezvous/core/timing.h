#ifndef DDPRUN_RENDEZVOUS_CORE_TIMING_H_
#define DDPRUN_RENDEZVOUS_CORE_TIMING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace ddprun::rendezvous {

// The service's time constants that no flag changes. docs/PROTOCOL.md has all times, in its rules
// and in "Times".

// What a node has beyond its stop grace to answer StopWorkers; then it is unclean (R3).
inline constexpr absl::Duration kStopSlack = absl::Seconds(5);

// How long a node that was here has at least to come back to a service that was started again: some
// of the pauses after which agents look for it (R5, R10).
inline constexpr absl::Duration kRecoveryLease = absl::Seconds(2);
// The same of a node whose service was silent for a lease already, once all others are back: its
// agent, if it lives, hears of another service in the same moment.
inline constexpr absl::Duration kVanishedLease = absl::Milliseconds(100);

// How long leases aren't judged while nobody is heard at all; longer than agents do without their
// service, so that it isn't the service that ends what they keep (R4, R5).
inline constexpr absl::Duration kIsolationMax = absl::Seconds(120);

// How long a silent member is waited for at most that the others could do without: longer than what
// switches that fail over and machines that migrate take (R4).
inline constexpr absl::Duration kSilenceMax = absl::Seconds(60);

// How long streams may stay open after the verdict.
inline constexpr absl::Duration kFarewell = absl::Seconds(2);

// How long after the first of them the last agent may come that a scheduler starts at the same time
// (R8): longer than what a file server or a container's image holds one of them up.
inline constexpr absl::Duration kAgentsStart = absl::Seconds(60);

// A generation that lasted this long has made progress, where the program doesn't say itself; and
// one with progress refills the budget of membership changes only if it lasted as long (R7).
inline constexpr absl::Duration kProgressUptime = absl::Seconds(60);

// A failure that comes sooner after the assignment is a failed start (R7).
inline constexpr absl::Duration kQuickFailure = absl::Seconds(10);

// Where the user chose no max_restarts: kills from outside in a row without progress, after which
// workers that go on aren't joined by new ones any more (R7).
inline constexpr uint32_t kSurvivorsRestartsInARow = 3;

// Failed starts in a row that were alike, from which on each decision says how many there were
// (R7).
inline constexpr uint32_t kSameFailuresNamed = 3;

// The pause before the second restart after failed starts in a row; each next one is twice as long
// (R7).
inline constexpr absl::Duration kFirstBackoff = absl::Milliseconds(500);

// How long a generation must have run before it ends for newcomers when the last growth gained
// nothing; twice as long after each further one, up to the second (R3).
inline constexpr absl::Duration kGrowthUptime = absl::Seconds(10);
inline constexpr absl::Duration kGrowthUptimeMax = absl::Hours(1);

// How long workers run after other nodes have ended well before they are named (R8).
inline constexpr absl::Duration kOthersEndedAfter = absl::Seconds(30);

// Failures of two nodes that arrive closer together than this are not told apart (R12): noticing,
// loop and network jitter are of that size.
inline constexpr absl::Duration kArrivalTie = absl::Milliseconds(50);

// Pause between two probes: a fifth of the lease, at most 1 s and at least 50 ms; with kLeaseMin at
// most a quarter of the lease, so that one lost probe doesn't end it (R4).
inline absl::Duration ProbeInterval(absl::Duration lease) {
  return std::clamp(lease / 5, absl::Milliseconds(50), absl::Seconds(1));
}

// Nodes that a job probes in a second at most: what a tenth of a processor can do, with all that an
// answer costs (docs/SCALE.md). Beyond, the pause between two probes follows the number of nodes.
inline constexpr int64_t kProbesASecond = 1024;
// Of such pauses a lease holds at least so many.
inline constexpr int64_t kProbesInLease = 5;

// How often a job's nodes are probed, and how long the answer counts (R4).
struct ProbePace {
  // Of a job with few nodes. Implicit, since then the lease says all.
  ProbePace(absl::Duration of_lease)  // NOLINT(google-explicit-constructor)
      : interval(ProbeInterval(of_lease)), lease(of_lease) {}
  // Params: nodes: that are to be probed.
  ProbePace(absl::Duration of_lease, size_t nodes)
      : interval(std::max(ProbeInterval(of_lease),
                          absl::Seconds(1) * static_cast<int64_t>(nodes) / kProbesASecond)),
        lease(std::max(
            of_lease, interval > ProbeInterval(of_lease) ? kProbesInLease * interval : of_lease)) {}

  // A pause of the service that is no stall yet (R4).
  absl::Duration pause() const { return lease / 4; }

  absl::Duration interval;
  absl::Duration lease;  // at least four intervals
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_TIMING_H_
