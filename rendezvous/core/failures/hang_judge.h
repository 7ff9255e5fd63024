#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURES_HANG_JUDGE_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURES_HANG_JUDGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// One worker of the job.
struct RankProgress {
  uint32_t rank = 0;  // global
  WorkerProgress worker;
};

struct HangVerdict {
  std::vector<uint32_t> guilty;  // ranks, ascending; several if the evidence fits each of them
  std::string evidence;          // for people
  // Whether the guilty ranks are to be killed: they provably can't go on, or have stood still for
  // as long as a hang may last. Otherwise the verdict is a suspicion, which ends nothing, because
  // what a rank waits for outside of the job may still arrive.
  bool end = false;
};

// Finds the ranks that hold up a job in which some rank is suspect (R13). Returns nothing if there
// are none, or if they may still go on. A collective stalls all ranks together, so the suspect is
// seldom the guilty one. Strongest evidence first:
//   1. stopped by a signal
//   2. behind: the lowest step of the ranks that mark steps; if all are equal, also the ranks that
//   never mark; of these, if it is known, those that have begun the fewest collectives
//   3. of these, busy ranks, but only if overdue; before that they are slow, not hung
//   4. of these, if all are still, those that wait for something else in the kernel than most
// If steps are counted for the program on all ranks (ProgressPhase::kCounted), only two rules
// follow 1: the ranks that have begun fewer collectives than the others, if that is known of all (a
// busy one only if overdue); if there is none, the ranks inside a collective that wait for a rank
// that has ended with status 0.
// A rank within the limit of its own phase (a long checkpoint) holds nothing up. Idle and done
// ranks are left out. If ranks are suspect before their steps are known (`early`), only ranks that
// others await in a collective are named. If an explicit --hang_timeout is over for all ranks
// (`idle`), 4 applies to counted steps, too. The verdict ends the guilty ranks if all of them are
// `expired`. Params: complete: every awaited node has answered; otherwise only 1 applies.
std::optional<HangVerdict> JudgeHang(const std::vector<RankProgress>& ranks, bool complete);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_HANG_JUDGE_H_
