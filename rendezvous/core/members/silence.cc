#include "rendezvous/core/members/silence.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

bool HearsNobody(const NodeTable::Nodes& nodes, Instant now, absl::Duration lease) {
  uint32_t silent = 0;
  bool hears_own_host = false;
  for (const auto& [order, node] : nodes) {
    const bool heard = now - node.heard <= lease / 2;
    if (heard && !node.info.hosts_service) return false;
    heard ? hears_own_host = true : ++silent;
  }
  return silent >= (hears_own_host ? 2 : 1);
}

bool Isolation::Holds(Instant now, bool hears_nobody) {
  if (!hears_nobody) return false;
  if (!open()) since_ = now;
  return now < since_ + kIsolationMax;
}

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

SilenceDecision DecideSilence(const JobSpec& spec, const SilenceInput& input) {
  using Why = SilenceDecision::Why;
  const SilenceDecision lost{.is_lost = true, .until = input.now};
  if (spec.lease_is_proof) return lost;
  SilenceDecision decision{.until = {}};
  absl::Duration wait;
  if (input.is_replaced) {
    decision.why = Why::kReplaced;
  } else if (input.others < spec.nodes_min) {
    decision.why = Why::kNeeded;
    wait = spec.join_timeout;
  } else if (!input.is_likely_gone) {
    decision.why = Why::kCheaper;
    wait = std::min(input.loss, kSilenceMax);
  }
  decision.until = std::max(input.now, input.since + wait);
  decision.is_lost = decision.until <= input.now;
  return decision;
}

std::string WaitText(const SilenceInput& input, uint32_t nodes_min, absl::Duration left) {
  const std::string wait =
      absl::StrCat("Waiting up to ",
                   DurationText(std::max(absl::Ceil(left, absl::Seconds(1)), absl::ZeroDuration())),
                   " more for it, because ");
  if (input.others < nodes_min) {
    return absl::StrCat(wait, "the job needs ", CountText(nodes_min, "node"),
                        ": another node ends the wait");
  }
  return absl::StrCat(wait, "a restart without it would cost ",
                      DurationText(absl::Ceil(input.loss, absl::Seconds(1))));
}

uint32_t CountOthers(const NodeTable::Nodes& nodes, Instant now, absl::Duration lease) {
  return static_cast<uint32_t>(
      std::count_if(nodes.begin(), nodes.end(), [&](const NodeTable::Nodes::value_type& each) {
        const Node& node = each.second;
        if (!node.stream || node.silent || node.draining || now - node.heard > lease / 2) {
          return false;
        }
        return node.group_rank || node.counted_answering;
      }));
}

bool IsReplaced(const Node& silent, const NodeTable::Nodes& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [&](const NodeTable::Nodes::value_type& each) {
    const Node& node = each.second;
    if (node.order <= silent.order || node.group_rank || !node.stream || !node.answered) {
      return false;
    }
    const bool same_claim = silent.info.node_rank && node.info.node_rank == silent.info.node_rank;
    const bool same_machine =
        node.info.hostname == silent.info.hostname && node.info.address == silent.info.address;
    return same_claim || same_machine;
  });
}

}  // namespace ddprun::rendezvous
