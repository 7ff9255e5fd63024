#ifndef DDPRUN_RENDEZVOUS_CORE_FAILURES_HANG_PROOF_H_
#define DDPRUN_RENDEZVOUS_CORE_FAILURES_HANG_PROOF_H_

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/failures/hang_judge.h"

namespace ddprun::rendezvous {

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

#endif  // DDPRUN_RENDEZVOUS_CORE_FAILURES_HANG_PROOF_H_
