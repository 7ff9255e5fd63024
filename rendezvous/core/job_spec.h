#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_SPEC_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_SPEC_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/time/time.h"

namespace ddprun::rendezvous {

// Above every count of a job; the largest value on the wire.
inline constexpr uint32_t kNoLimit = std::numeric_limits<int32_t>::max();

// When a job is restarted after failures, and when it is given up (proto RestartRules; R7). By
// default a job ends only when its restarts are used up, as with torchrun: any other limit is a
// guess that only the user can make.
struct RestartRules {
  uint32_t max_membership_changes = kNoLimit;  // in a row without progress
  // A generation that made progress and lasted this long gives all restarts back; 0 = none does.
  absl::Duration restart_window = absl::ZeroDuration();
  // Longest pause before a restart after quick failures in a row; 0 = never a pause.
  absl::Duration backoff_max = absl::Seconds(30);
  uint32_t crash_loop = 0;        // starts in a row that fail alike end the job; 0 = never
  uint32_t give_up_after = 0;     // failed generations without progress end the job; 0 = never
  uint32_t quarantine_after = 3;  // failures that begin on one node leave it out; 0 = never
  absl::Duration quarantine_time = absl::Hours(1);  // how long one of them counts
  // The user chose quarantine_after: the node is left out even if no other node can replace it.
  bool quarantine_shrinks = false;

  friend bool operator==(const RestartRules&, const RestartRules&) = default;
};

// What all nodes of a job must agree on (proto JobSpec). Unset numbers have their defaults here.
struct JobSpec {
  std::string run_id;
  uint32_t nodes_min = 1;
  uint32_t nodes_max = 1;
  uint32_t max_restarts = 0;
  // The user didn't choose max_restarts = 0: a worker that was killed from outside is replaced
  // without a restart's charge if other workers keep their processes (R7).
  bool survivors_restart = false;
  std::string fingerprint;  // digest of command, sizes and versions
  std::string description;  // what the fingerprint covers, for people
  absl::Duration join_timeout = absl::Seconds(600);
  absl::Duration last_call_timeout = absl::Seconds(30);
  absl::Duration lease = absl::Seconds(5);
  bool lease_is_proof =
      false;  // the user chose the lease: a node silent for that long is lost (R4)
  absl::Duration reconnect_grace = absl::Milliseconds(150);
  absl::Duration stop_grace = absl::Seconds(30);  // TERM to KILL
  RestartRules restart;
  // How many agents of this job a scheduler starts at the same time, each once; 0 = not known. The
  // job may end before the last one has started (R8).
  uint32_t agents_started = 0;

  friend bool operator==(const JobSpec&, const JobSpec&) = default;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_SPEC_H_
