#include "tests/sim/decision_watch.h"

#include <variant>

#include "absl/strings/str_cat.h"

namespace ddprun::sim {

using rendezvous::Assignment;
using rendezvous::CommitStop;
using rendezvous::ServiceMessage;
using rendezvous::Verdict;

std::string DecisionWatch::OnTold(const std::string& node, const ServiceMessage& message) {
  if (const auto* assignment = std::get_if<Assignment>(&message)) {
    return OnAssignment(node, *assignment);
  }
  if (const auto* commit = std::get_if<CommitStop>(&message)) {
    const uint64_t first = stop_steps_.emplace(commit->generation, commit->step).first->second;
    if (first == commit->step) return "";
    return absl::StrCat("generation ", commit->generation.value(), " has to stop at steps ", first,
                        " and ", commit->step);
  }
  if (const auto* verdict = std::get_if<Verdict>(&message)) {
    const std::pair told(verdict->outcome, verdict->generation);
    if (!verdict_) verdict_ = told;
    return *verdict_ == told ? "" : "two verdicts are sent";
  }
  return "";
}

std::string DecisionWatch::OnAssignment(const std::string& node, const Assignment& assignment) {
  const std::pair key(assignment.generation, assignment.group_rank);
  const auto [known, fresh] = seats_.try_emplace(key, Seat{assignment, node});
  if (fresh) return "";
  // redone_to is sent as the service knows it at that time, so it may differ.
  Assignment same = known->second.assignment;
  same.redone_to = assignment.redone_to;
  if (same == assignment && known->second.node == node) return "";
  return absl::StrCat("two services give group rank ", assignment.group_rank, " of generation ",
                      assignment.generation.value(), " to ", known->second.node, " and ", node,
                      ", or each in another way");
}

}  // namespace ddprun::sim
