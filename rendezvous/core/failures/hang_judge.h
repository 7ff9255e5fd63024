#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURES_HANG_JUDGE_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURES_HANG_JUDGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/worker_progress.h"

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
//      never mark; of these, if it is known of all, those that have begun the fewest collectives of
//      the default group
//   3. of these, active ranks, but only once some rank is overdue; before that they are slow, not
//      hung
//   4. of these, if all are still, those that wait in a different place in the kernel than more
//      than half of all ranks; otherwise all of them, a tie: none is called the cause
// There is no verdict if a rank that is behind is within the limit of its own phase (a long
// checkpoint).
// If steps are counted for the program on all ranks (ProgressPhase::kCounted; if only on some,
// these count as unmarked), only two rules follow 1: the ranks that have begun the fewest
// collectives, if that is known of all and differs, and each of them is suspect and still, or
// overdue; if there are none, suspect ranks inside a collective of a group which a member that has
// ended with status 0 had not begun. If an explicit --hang_timeout is over for all ranks (`idle`),
// 4 applies, too. While all suspects are `early`, only ranks are guilty that have begun the fewest
// collectives of all, and fewer than others. Idle and done ranks are left out. The verdict ends the
// guilty ranks if all of them are `expired`; stopped ranks only while others wait, or by an
// explicit --hang_timeout. Params: complete: every awaited node has answered; otherwise only 1
// applies.
std::optional<HangVerdict> JudgeHang(const std::vector<RankProgress>& ranks, bool complete);

struct HangProof {
  HangVerdict verdict;  // ends the guilty ranks
  // Identifies which ranks stand where. A rank that is at the same collective of the same group in
  // two reports was there all the time between, because sequence numbers only grow. So a proof
  // holds once two rounds of reports give the same fingerprint: at some moment all of it was true
  // at once, although nodes report at different moments.
  std::string fingerprint;
};

// Proves that some ranks can never go on, whatever happens outside of the job (R13); nothing if
// that can't be proven. The first that holds:
//   1. deadlocked: only a rank's own threads could release the locks that all of them wait for.
//   2. left: all remaining members of a group wait in a collective that a member which ended with
//   status 0 had not begun.
//   3. crossed: ranks wait in collectives that can't meet: of one group and number, but of
//   different kinds; or each for a rank that waits elsewhere, in a circle.
// Params: complete: every awaited node has answered; otherwise only 1 applies.
std::optional<HangProof> ProveHang(const std::vector<RankProgress>& ranks, bool complete);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_HANG_JUDGE_H_
