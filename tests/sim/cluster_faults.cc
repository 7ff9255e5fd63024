#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_sim.h"

// What goes wrong in a simulated cluster.
namespace ddprun::sim {

using rendezvous::Event;
using rendezvous::Generation;

namespace {

absl::Duration FaultTime(uint64_t ms) { return absl::Milliseconds(static_cast<int64_t>(ms)); }

}  // namespace

void ClusterSim::ScheduleFaults() {
  for (const PlannedFault& fault : plan_.faults) {
    queue_.At(fault.at, [this, fault] { Fault(fault); });
  }
}

// Params: after: effects; 0 = now.
void ClusterSim::KillService(uint64_t after) {
  if (!service_->up() || !service_->may_die() || queue_.now() < stalled_until_ || ended_) return;
  if (after == 0) return service_->Die();
  service_->DieAfter(after - 1);
}

void ClusterSim::OnServiceDied() {
  Trace(absl::StrCat("the service dies, life ", service_->life()));
  ++result_.deaths;
  ++service_timer_;
  done_.Forget();
  isolation_.Forget();
  DisturbLooks();
  network_->KillService();
  queue_.After(FaultTime(20 + rng_.Below(rng_.Chance(80) ? 200 : 2000)), [this] {
    Trace("the service starts again");
    network_->StartService();
    service_->Start();
    DisturbLooks();
    ArmServiceTimer();
  });
}

void ClusterSim::Fault(const PlannedFault& fault) {
  if (ended_) return;
  Trace(absl::StrCat("FAULT ", Describe(fault)));
  SimNode* node = nodes_[fault.node].get();
  switch (fault.kind) {
    case FaultKind::kKillService:
      return KillService(fault.detail);
    case FaultKind::kCrashAgent:
      if (node->live_generation()) FailPeers(node->number(), *node->live_generation());
      return node->CrashAgent();
    case FaultKind::kCrashAndBack:
      node->CrashAgent();
      return queue_.After(FaultTime(fault.detail), [node] { node->StartAgent(); });
    case FaultKind::kHangWorker:
      return HangWorker(node);
    case FaultKind::kFailWorker:
      return FailOne(node, fault.detail);
    case FaultKind::kBreakStream:
      return node->BreakStream();
    case FaultKind::kCutServiceOff:
      return CutServiceOff(fault.lasts);
    case FaultKind::kCut:
      return Cut(node, fault);
    case FaultKind::kFreezeAgent:
      node->SetFrozen(true);
      return queue_.After(fault.lasts, [node] { node->SetFrozen(false); });
    case FaultKind::kStallService:
      stalled_until_ = std::max(stalled_until_, queue_.now() + fault.lasts);
      DisturbLooks();
      return queue_.At(stalled_until_, [this] { ResumeService(); });
    case FaultKind::kDrain:
      return Drain(node, fault.lasts);
    case FaultKind::kSignalAgent:
      return node->SignalAgent(static_cast<int>(fault.detail));
    case FaultKind::kKillAtVerdict:
      dies_at_verdict_ = fault.detail;
      return;
  }
}

// What was waited for begins anew.
void ClusterSim::DisturbLooks() {
  growth_.Disturb();
  losses_.Disturb(std::max(queue_.now(), stalled_until_));
  successes_.Disturb(std::max(queue_.now(), stalled_until_));
}

void ClusterSim::Cut(SimNode* node, const PlannedFault& fault) {
  network_->SetCut(node->number(), fault.detail != 0, fault.detail != 1);
  isolation_.OnEnd();  // if it was, its end is another's now
  queue_.After(fault.lasts, [this, number = node->number()] {
    Trace(absl::StrCat("node ", number, " is healed"));
    isolation_.OnEnd();
    network_->SetCut(number, false, false);
  });
}

void ClusterSim::CutServiceOff(absl::Duration lasts) {
  Trace("the service is cut off from all nodes");
  ObserveNodes();
  std::set<std::string> sound;
  for (const auto& node : nodes_) {
    const bool heard = queue_.now() >= leases_.SoundSince(node->number()) + job_.lease;
    if (heard) sound.insert(node->id().value());
    network_->SetCut(node->number(), true, true);
  }
  isolation_.OnCutOff(std::move(sound));
  queue_.After(lasts, [this] {
    Trace("the service has its network again");
    isolation_.OnEnd();
    for (const auto& node : nodes_) network_->SetCut(node->number(), false, false);
  });
}

// By a fault of its own, or killed by somebody.
void ClusterSim::FailOne(SimNode* node, uint64_t how) {
  const std::optional<Generation> generation = node->live_generation();
  if (!generation) return;
  if (how == 0) return node->FailWorker(SIGKILL, "");
  outside_kills_.OnOwnFailure(*generation);
  node->FailWorker(how == 1 ? SIGSEGV : 0, "ValueError: NaN loss");
}

void ClusterSim::Heal() {
  Trace("no more faults");
  faults_on_ = false;
  service_->Live();
  isolation_.OnEnd();
  stalled_until_ = queue_.now();
  ResumeService();
  for (const auto& node : nodes_) {
    network_->SetCut(node->number(), false, false);
    node->SetFrozen(false);
  }
}

// Somebody, or something, starts agents again while the job isn't over.
void ClusterSim::KeepAgentsUp() {
  queue_.After(FaultTime(500 + rng_.Below(3000)), [this] {
    if (verdict_ || ended_) return;
    for (const auto& node : nodes_) {
      if (node->was_started() && (!faults_on_ || rng_.Chance(50))) node->StartAgent();
    }
    KeepAgentsUp();
  });
}

void ClusterSim::ResumeService() {
  if (queue_.now() < stalled_until_) return;
  ArmServiceTimer();
  while (!stalled_events_.empty()) {
    const Event event = std::move(stalled_events_.front());
    stalled_events_.pop_front();
    if (service_->up()) StepService(event);
  }
}

void ClusterSim::HangWorker(SimNode* node) {
  const std::optional<Generation> generation = node->live_generation();
  if (!generation) return;
  Trace(absl::StrCat("a worker of node ", node->number(), " hangs"));
  outside_kills_.OnOwnFailure(*generation);
  node->HangWorker();
  for (const auto& each : nodes_) each->BecomeSuspicious(*generation);
}

// For a while its machine may not join again.
void ClusterSim::Drain(SimNode* node, absl::Duration lasts) {
  ++result_.drains;
  if (!service_->up()) return;
  OnServiceEvent(rendezvous::DrainRequested{.node = node->id(), .reason = "maintenance"});
  const auto undo = [this, id = node->id()] {
    if (ended_ || !service_->up()) return;
    OnServiceEvent(rendezvous::DrainRequested{.node = id, .reason = "", .undo = true});
  };
  if (sabotage_ == Sabotage::kForgetDrained) {
    const bool checks = std::exchange(forgets_drains_, true);
    undo();
    forgets_drains_ = checks;
    return;
  }
  queue_.After(lasts, undo);
}

}  // namespace ddprun::sim
