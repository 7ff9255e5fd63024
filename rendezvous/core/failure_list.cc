#include "rendezvous/core/failure_list.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

void FailureList::Add(WorkerFailure failure, Instant arrival) {
  const Evidence evidence = Weigh(failure);
  const NodeId node = failure.node_id;
  const auto known = std::find_if(
      reported_.begin(), reported_.end(),
      [&](const ReportedFailure& other) { return other.failure.rank == failure.rank; });
  if (known != reported_.end()) {
    known->failure = std::move(failure);
    evidence_[static_cast<size_t>(known - reported_.begin())] = evidence;
    return FindStrongestOf(node);
  }
  reported_.push_back({std::move(failure), arrival});
  evidence_.push_back(evidence);
  strongest_.push_back(false);
  FindStrongestOf(node);
  if (reported_.size() <= kFailuresMax) return;
  const auto weakest = static_cast<ptrdiff_t>(Weakest());
  const NodeId loser = reported_[static_cast<size_t>(weakest)].failure.node_id;
  reported_.erase(reported_.begin() + weakest);
  evidence_.erase(evidence_.begin() + weakest);
  strongest_.erase(strongest_.begin() + weakest);
  FindStrongestOf(loser);
}

void FailureList::FindStrongestOf(const NodeId& node) {
  const auto strength = [this](size_t at) {
    return std::tuple(evidence_[at], reported_[at].failure.after_first_ms, at);
  };
  std::optional<size_t> strongest;
  for (size_t index = 0; index < reported_.size(); ++index) {
    if (reported_[index].failure.node_id != node) continue;
    strongest_[index] = false;
    if (!strongest || strength(index) < strength(*strongest)) strongest = index;
  }
  if (strongest) strongest_[*strongest] = true;
}

size_t FailureList::Weakest() const {
  size_t weakest = 0;
  std::tuple<bool, Evidence, size_t> least;
  for (size_t index = 0; index < reported_.size(); ++index) {
    const std::tuple weakness(!strongest_[index], evidence_[index], index);
    if (index > 0 && weakness < least) continue;
    weakest = index;
    least = weakness;
  }
  return weakest;
}

std::string FailureList::BrokenInvariant() const {
  if (reported_.size() > kFailuresMax) return "more failures than are kept";
  const bool weighed =
      evidence_.size() == reported_.size() && strongest_.size() == evidence_.size();
  if (!weighed) return "failures without their weight";
  std::set<uint32_t> ranks;
  Instant last = Instant::FromNanoseconds(0);
  for (const ReportedFailure& each : reported_) {
    if (!ranks.insert(each.failure.rank).second) return "two failures of one rank";
    if (each.arrival < last) return "failures out of order";
    last = each.arrival;
  }
  return "";
}

}  // namespace ddprun::rendezvous
