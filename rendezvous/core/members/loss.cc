#include "rendezvous/core/members/loss.h"

#include "absl/strings/str_cat.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

Loss DescribeLoss(LossProof proof, const Node& node, const JobSpec& spec, absl::Duration lease) {
  Loss loss;
  switch (proof) {
    case LossProof::kStreamClosed:
      loss.why = "stream closed";
      break;
    case LossProof::kLeaseExpired:
      loss.why = "lease expired";
      loss.goodbye = absl::UnavailableError(
          absl::StrCat("this agent was silent for longer than the lease of ", DurationText(lease),
                       " and counts as lost: join again"));
      break;
    case LossProof::kUnclean:
      loss.why = "unclean";
      loss.refusal = absl::AbortedError(
          absl::StrCat(NodeText(node), " couldn't end its processes of an old generation within ",
                       DurationText(spec.stop_grace + kStopSlack),
                       ": end them by hand, then start ddprun there again"));
      loss.goodbye = loss.refusal;
      break;
    case LossProof::kSuperseded:
      loss.why = "a new agent took its place";
      loss.refusal = absl::AbortedError("a newer agent of this node took its place");
      loss.goodbye = loss.refusal;
      break;
  }
  return loss;
}

}  // namespace ddprun::rendezvous
