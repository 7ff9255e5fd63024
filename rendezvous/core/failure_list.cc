#include "rendezvous/core/failure_list.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <tuple>
#include <utility>

#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

void FailureList::Add(WorkerFailure failure, Instant arrival) {
  const Evidence evidence = Weigh(failure);
  const auto known = std::find_if(
      reported_.begin(), reported_.end(),
      [&](const ReportedFailure& other) { return other.failure.rank == failure.rank; });
  if (known != reported_.end()) {
    known->failure = std::move(failure);
    evidence_[static_cast<size_t>(known - reported_.begin())] = evidence;
    return;
  }
  reported_.push_back({std::move(failure), arrival});
  evidence_.push_back(evidence);
  if (reported_.size() <= kFailuresMax) return;
  const auto weakest = static_cast<ptrdiff_t>(Weakest());
  reported_.erase(reported_.begin() + weakest);
  evidence_.erase(evidence_.begin() + weakest);
}

bool FailureList::IsStrongestOfItsNode(size_t index) const {
  const auto strength = [this](size_t at) {
    return std::tuple(evidence_[at], reported_[at].failure.after_first_ms, at);
  };
  for (size_t other = 0; other < reported_.size(); ++other) {
    if (reported_[other].failure.node_id == reported_[index].failure.node_id &&
        strength(other) < strength(index)) {
      return false;
    }
  }
  return true;
}

size_t FailureList::Weakest() const {
  size_t weakest = 0;
  std::tuple<bool, Evidence, size_t> least;
  for (size_t index = 0; index < reported_.size(); ++index) {
    const std::tuple weakness(!IsStrongestOfItsNode(index), evidence_[index], index);
    if (index > 0 && weakness < least) continue;
    weakest = index;
    least = weakness;
  }
  return weakest;
}

std::string FailureList::BrokenInvariant() const {
  if (reported_.size() > kFailuresMax) return "more failures than are kept";
  if (evidence_.size() != reported_.size()) return "failures without their weight";
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
