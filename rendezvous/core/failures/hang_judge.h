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
  std::vector<uint32_t> guilty;  // ranks, ascending; more than one: they can't be told apart
  std::string evidence;          // for people
  // They are to be ended: it is proven that they can't go on, or they have stood for as long as a
  // hang may last. Else it is a suspicion, which ends nothing: whatever a rank waits for outside of
  // the job may yet come.
  bool end = false;
};

// Says who holds up a job in which somebody is suspect (R13); nothing when nobody does, or when
// whoever does may yet go on. A collective makes all ranks stall together, so the suspect is seldom
// the guilty one. Strongest evidence first:
//   1. stopped by a signal
//   2. behind: the least step of those that mark; if all are equal, those that never mark too; of
//      these, if that is known of them, who has begun the fewest collectives
//   3. of these, busy: only once overdue; before that it is slow, not hung
//   4. of these when all are still: who waits for something else in the kernel than most ranks do
// Where steps are counted for the program on all ranks (ProgressPhase::kCounted), only this comes
// after 1: who has begun fewer collectives than the others, if that is known of all; one that is
// busy only once overdue; or if there is none, who waits inside a collective for a rank that has
// ended with status 0. Whoever is within the limits of its own phase (a long checkpoint) holds
// nothing up. Ranks that are idle or done are left out. Where ranks are suspect before their steps
// are known (`early`), only who is awaited in a collective is named. Where an explicit
// --hang_timeout is over for all ranks (`idle`), 4 counts for counted steps, too. The verdict ends
// the guilty ranks if all of them are `expired`. Params: `complete`: every node that is awaited has
// answered; without that only 1 counts.
std::optional<HangVerdict> JudgeHang(const std::vector<RankProgress>& ranks, bool complete);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_HANG_JUDGE_H_
