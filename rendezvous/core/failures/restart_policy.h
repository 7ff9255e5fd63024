#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURES_RESTART_POLICY_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURES_RESTART_POLICY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "rendezvous/core/policy_rule.h"
#include "rendezvous/core/restart_history.h"
#include "rendezvous/core/types.h"

// What the end of a generation costs, whether the next one follows and when: a pure function of the
// job's rules, what is remembered of the generations before, and how this one ended (R7).
namespace ddprun::rendezvous {

// What ended a generation, as decided when all its members have answered (R7).
enum class Blame { kWorker, kMembership, kGrowth };

std::string BlameName(Blame blame);

// How a generation ended.
struct RoundEnd {
  bool any_gone = false;  // a node was lost or left in this round
  bool for_growth = false;
  bool newcomers_gone = false;  // not all for whom it grew are still here; only with for_growth
  absl::Duration uptime;        // from the assignment to the first trigger
  // Highest step that one of its workers marked; nullopt = the program doesn't say. Progress is
  // then a step beyond all before, and uptime alone otherwise.
  std::optional<uint64_t> step;
  bool any_kept = false;                 // workers go on in their processes
  const WorkerFailure* cause = nullptr;  // the first one (R12); null = nobody reported a failure
  double jitter = 0;                     // 0 to 1: how much of half a pause is left out
};

struct RestartDecision {
  Blame blame = Blame::kWorker;
  Rule rule = Rule::kWorkerFailure;
  RestartHistory history;          // afterwards
  std::optional<Outcome> verdict;  // the job ends with it; nullopt = it goes on
  absl::Duration pause;            // before the next generation
  // For people, beside the cause: "all 3 restarts are used up", "restart 2 of 3 after a pause of
  // 500 ms"; "" = nothing to add.
  std::string why;
};

// Who pays for the end of a generation, and whether that was the last one. In this order:
//   what a preflight found ends the job;
//   a loss makes failures of the same round consequences: a membership change, never a pause;
//   growth is free, unless who it was for is gone: a membership change; a kill from outside is free
//   where others go on in their processes and the user chose no number; else a failure costs a
//   restart, if one is left; failures that no restart will cure end the job for good; quick ones in
//   a row wait longer and longer.
//
// Limits that torchrun doesn't have (crash loops, membership changes) act only if the user gives
// them: a program that fails six times and then works, because a file server isn't mounted yet,
// gets all the restarts that were asked for.
RestartDecision DecideRestart(const JobSpec& spec, const RestartHistory& before,
                              const RoundEnd& end);

// Killed by a signal that comes from outside (KILL, TERM, INT, HUP, QUIT, …) without a word and
// not for lack of memory, or stopped (SIGSTOP) until it hung: says nothing about program or
// machine, so it is no quick failure and no node is blamed for it.
bool KilledFromOutside(const WorkerFailure& failure);

// What two failures that are alike have in common: exit code, signal, start error and the first
// line of the message, or else the error among the worker's last words. The rank is no part of it:
// when all workers fail alike, which one is first is chance.
std::string FailureKind(const WorkerFailure& failure);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_RESTART_POLICY_H_
