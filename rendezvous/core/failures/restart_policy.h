#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURES_RESTART_POLICY_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURES_RESTART_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/restart_history.h"
#include "rendezvous/core/verdict.h"
#include "rendezvous/core/worker_failure.h"

// What the end of a generation costs, and whether and when the next one follows: pure functions of
// the job's rules, the history of its generations, and how this one ended (R7).
namespace ddprun::rendezvous {

// What ended a generation, as decided when all its members have answered (R7).
enum class Blame { kWorker, kMembership, kGrowth };

std::string BlameName(Blame blame);

// How a generation ended.
struct RoundEnd {
  bool any_gone = false;  // a node was lost or left in this round
  bool for_growth = false;
  bool newcomers_gone = false;  // some node that it grew for has gone; only with for_growth
  absl::Duration uptime;        // from the assignment to the first trigger
  // Highest step that a worker marked; nullopt = the program marks none. Progress is a step beyond
  // all earlier ones; without marks, uptime alone counts.
  std::optional<uint64_t> step;
  bool any_kept = false;                 // some workers keep their processes
  const WorkerFailure* cause = nullptr;  // the first cause (R12); null = no failure was reported
  double jitter = 0;                     // 0 to 1: the share of half a pause that is left out
};

struct RestartDecision {
  Blame blame = Blame::kWorker;
  Rule rule = Rule::kWorkerFailure;
  RestartHistory history;          // afterwards
  std::optional<Outcome> verdict;  // how the job ends; nullopt = it goes on
  absl::Duration pause;            // before the next generation
  // Text for people that follows the cause: "all 3 restarts are used up", "restart 2 of 3 after a
  // pause of 500 ms"; "" = nothing to add.
  std::string why;
};

// Decides which budget the end of a generation is charged to, and whether the job may restart. The
// first that applies:
//   a finding of a preflight ends the job;
//   a loss is a membership change: failures of the same round are consequences, and no pause
//   follows;
//   growth is free, but a membership change if a node that it was for has gone;
//   a kill from outside is free if other workers keep their processes, unless the user chose that
//   there be no restart;
//   any other failure costs a restart, if one is left. Failures that no restart will cure end the
//   job for good, and quick failures in a row are followed by growing pauses.
//
// Limits that torchrun doesn't have (crash loops, membership changes) act only if the user gives
// them: a program that fails six times and then works, because a file server isn't mounted so far,
// gets all the restarts that were asked for.
RestartDecision DecideRestart(const JobSpec& spec, const RestartHistory& before,
                              const RoundEnd& end);

// Whether the worker was killed by a signal from outside (KILL, TERM, INT, HUP, QUIT, USR1 or USR2)
// without a message and not for lack of memory, or was stopped (SIGSTOP) until it hung. That is no
// evidence about program or machine, so it is no quick failure, and no node is blamed for it.
bool KilledFromOutside(const WorkerFailure& failure);

// The part of a failure by which two failures count as alike: exit code, signal, start error and
// the first line of the message, or else the error among the worker's last output. The rank isn't
// in it, because chance decides which of several failing workers is first.
std::string FailureKind(const WorkerFailure& failure);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_RESTART_POLICY_H_
