#ifndef DDPRUN_RENDEZVOUS_CORE_DESCRIBE_H_
#define DDPRUN_RENDEZVOUS_CORE_DESCRIBE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/verdict.h"
#include "rendezvous/core/worker_failure.h"

// Texts for people, in one place so that all messages use the same words. Pure.
namespace ddprun::rendezvous {

// "600 s", "150 ms".
std::string DurationText(absl::Duration duration);

// "2", or "2 to 4" when the number of nodes is elastic.
std::string NodesText(const JobSpec& spec);

// "a, b, c and 4 more"; "none" for an empty list.
std::string ListText(const std::vector<std::string>& names);

// "worker rank 3 on host1 was killed by SIGKILL", "… exited with code 1", "… couldn't be started:
// …".
std::string FailureText(const WorkerFailure& failure);

// "succeeded", "failed", "failed for good", "stopped" or "preempted".
std::string OutcomeText(Outcome outcome);
// The outcome for programs: "failed_for_good".
std::string OutcomeName(Outcome outcome);

// "restart 2 of 3"; if some weren't charged, or were given back, "restart 7, 2 of 3 charged"; if
// max_restarts is 0 "restart 2".
std::string RestartText(uint32_t restart_count, uint32_t restarts_charged, uint32_t max_restarts);

// kLeftFact: "left: ranks 1, 3 had ended with status 0". Requires: there are ranks.
std::string LeftText(const std::vector<uint32_t>& ranks);

// Returns `text`, cut to at most `bytes_max` bytes.
std::string Bounded(std::string text, size_t bytes_max);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_DESCRIBE_H_
