#include "tools/chaos/core/chaos_schedule.h"

#include <algorithm>
#include <utility>

#include "base/rng.h"

namespace ddprun::launcher {
namespace {

uint64_t HighestStep(const ChaosView& view) {
  uint64_t highest = 0;
  for (const auto& worker : view.workers) highest = std::max(highest, worker.step);
  return highest;
}

bool AnyMarked(const ChaosView& view) {
  return std::any_of(view.workers.begin(), view.workers.end(),
                     [](const auto& worker) { return worker.phase != ProgressPhase::kNone; });
}

bool AnyIn(const ChaosView& view, ProgressPhase phase) {
  return std::any_of(view.workers.begin(), view.workers.end(),
                     [phase](const auto& worker) { return worker.runs && worker.phase == phase; });
}

bool IsMoment(Moment moment, const ChaosView& view) {
  switch (moment) {
    case Moment::kStarting:
      return std::any_of(view.workers.begin(), view.workers.end(),
                         [](const auto& worker) { return worker.runs; }) &&
             !AnyIn(view, ProgressPhase::kTrain) && !AnyIn(view, ProgressPhase::kCounted);
    case Moment::kRunning:
      return AnyIn(view, ProgressPhase::kTrain) || AnyIn(view, ProgressPhase::kCounted);
    case Moment::kSaving:
      return AnyIn(view, ProgressPhase::kCheckpoint);
  }
  return false;
}

}  // namespace

bool IsNoNode(const Victim& victim, const NodesSeen& nodes) {
  if (nodes.hosts.empty()) return false;
  if (victim.group_rank.has_value()) return *victim.group_rank >= nodes.most;
  return !victim.host.empty() && !nodes.hosts.contains(victim.host);
}

ChaosSchedule::ChaosSchedule(ChaosPlan plan)
    : plan_(std::move(plan)), states_(plan_.faults.size()) {}

Instant ChaosSchedule::DueTime(const FaultPlan& fault, const State& state,
                               const ChaosView& view) const {
  if (fault.trigger.each_generation) {
    const bool fresh = view.generation != 0 && view.begun != state.last_begun;
    return fresh ? view.generation_began + fault.trigger.at : Instant::Infinite();
  }
  if (!view.job_began.has_value()) return Instant::Infinite();
  // Counted from the last injection, so that injections that had no victim don't all come at once.
  return state.occurrences > 0 ? state.last + fault.trigger.every
                               : *view.job_began + fault.trigger.at;
}

bool ChaosSchedule::IsDue(const FaultPlan& fault, const State& state, Instant now,
                          const ChaosView& view) const {
  const Trigger& trigger = fault.trigger;
  switch (trigger.kind) {
    case Trigger::Kind::kAt:
      return DueTime(fault, state, view) <= now;
    case Trigger::Kind::kStep:
      return AnyMarked(view) &&
             HighestStep(view) >= trigger.step + trigger.every_steps * state.occurrences;
    case Trigger::Kind::kMoment:
      return view.generation != 0 && view.begun != state.last_begun &&
             IsMoment(trigger.moment, view);
  }
  return false;
}

ChaosSchedule::Place ChaosSchedule::Find(size_t index, const ChaosView& view,
                                         Injection* injection) const {
  const FaultPlan& fault = plan_.faults[index];
  const Victim& victim = fault.victim;
  if (HitsService(fault.kind)) {
    return view.service_here && view.agent_runs ? Place::kHere : Place::kElsewhere;
  }
  if (!victim.host.empty()) {
    if (victim.host != view.host) return Place::kElsewhere;
    return view.agent_runs ? Place::kHere : Place::kNowhere;
  }
  if (view.generation == 0 || view.world == 0) return Place::kNowhere;
  if (victim.group_rank.has_value()) {
    if (*victim.group_rank != view.group_rank) return Place::kElsewhere;
    return view.agent_runs ? Place::kHere : Place::kNowhere;
  }
  uint64_t rank = victim.rank.value_or(0);
  if (victim.random) {
    Rng rng(plan_.seed ^ (static_cast<uint64_t>(index + 1) << 32 | injection->occurrence));
    rank = rng.Below(view.world);
  }
  if (rank >= view.world) return Place::kNowhere;
  if (rank < view.base_rank || rank - view.base_rank >= view.workers.size()) {
    return Place::kElsewhere;
  }
  if (!HitsWorker(fault.kind)) return view.agent_runs ? Place::kHere : Place::kNowhere;
  injection->rank = static_cast<uint32_t>(rank);
  return view.workers[rank - view.base_rank].runs ? Place::kHere : Place::kNowhere;
}

std::vector<Injection> ChaosSchedule::Due(Instant now, const ChaosView& view) {
  std::vector<Injection> due;
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    const FaultPlan& fault = plan_.faults[i];
    State& state = states_[i];
    if (state.over || !IsDue(fault, state, now, view)) continue;
    Injection injection{.fault = i, .occurrence = state.occurrences};
    const Place place = Find(i, view, &injection);
    if (place == Place::kNowhere) continue;
    if (place == Place::kHere) due.push_back(injection);
    ++state.occurrences;
    state.last_begun = view.begun;
    state.last = now;
    state.over = fault.trigger.times != 0 && state.occurrences >= fault.trigger.times;
  }
  return due;
}

Instant ChaosSchedule::NextTime(Instant now, const ChaosView& view) const {
  Instant next = Instant::Infinite();
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    const FaultPlan& fault = plan_.faults[i];
    if (states_[i].over || fault.trigger.kind != Trigger::Kind::kAt) continue;
    const Instant at = DueTime(fault, states_[i], view);
    if (at > now) next = std::min(next, at);
  }
  return next;
}

bool ChaosSchedule::WaitsForMarks() const {
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    const Trigger& trigger = plan_.faults[i].trigger;
    if (!states_[i].over && trigger.kind != Trigger::Kind::kAt) return true;
  }
  return false;
}

std::vector<size_t> ChaosSchedule::NeverDue() const {
  std::vector<size_t> never;
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    if (states_[i].occurrences == 0) never.push_back(i);
  }
  return never;
}

}  // namespace ddprun::launcher
