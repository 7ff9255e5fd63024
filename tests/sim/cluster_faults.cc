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
  queue_.After(FaultTime(20 + rng_.Below(pause_ms_)), [this] {
    if (!faults_on_) return;
    Fault();
    ScheduleFaults();
  });
}

// At once, perhaps while it writes; or within what it carries out next, so between any two effects
// of a decision.
void ClusterSim::KillService() {
  if (!service_->up() || !service_->may_die() || queue_.now() < stalled_until_ || ended_) return;
  if (rng_.Chance(40)) return service_->Die();
  Trace("the service is to die");
  service_->DieAfter(rng_.Below(rng_.Chance(50) ? 3 : 40));
}

void ClusterSim::OnServiceDied() {
  Trace(absl::StrCat("the service dies, life ", service_->life()));
  ++result_.deaths;
  ++service_timer_;
  done_.Forget();
  isolation_.Forget();
  growth_.Disturb();
  network_->KillService();
  queue_.After(FaultTime(20 + rng_.Below(rng_.Chance(80) ? 200 : 2000)), [this] {
    Trace("the service starts again");
    network_->StartService();
    service_->Start();
    ArmServiceTimer();
  });
}

void ClusterSim::Fault() {
  if (program_ == Program::kOutlivesService || (service_->may_die() && rng_.Chance(15))) {
    return KillService();
  }
  SimNode* node = nodes_[rng_.Below(nodes_.size())].get();
  const absl::Duration lasts = FaultTime(rng_.Below(rng_.Chance(50) ? 1000 : 8000));
  const uint64_t kind = rng_.Below(100);
  if (kind < 20) {
    if (node->live_generation()) FailPeers(node->number(), *node->live_generation());
    node->CrashAgent();
  } else if (kind < 25) {
    HangWorker(node);
  } else if (kind < 35) {
    FailOne(node);
  } else if (kind < 50) {
    Trace(absl::StrCat("stream of node ", node->number(), " breaks"));
    node->BreakStream();
  } else if (kind < 53) {
    CutServiceOff(lasts);
  } else if (kind < 70) {
    const uint64_t which = rng_.Below(3);
    Trace(absl::StrCat("node ", node->number(), " is cut, ", which));
    network_->SetCut(node->number(), which != 0, which != 1);
    isolation_.OnEnd();  // if it was, its end is another's now
    queue_.After(lasts, [this, number = node->number()] {
      Trace(absl::StrCat("node ", number, " is healed"));
      isolation_.OnEnd();
      network_->SetCut(number, false, false);
    });
  } else if (kind < 80) {
    node->SetFrozen(true);
    queue_.After(lasts, [node] { node->SetFrozen(false); });
  } else if (kind < 90) {
    Trace(absl::StrCat("the service stalls for ", absl::FormatDuration(lasts)));
    stalled_until_ = std::max(stalled_until_, queue_.now() + lasts);
    growth_.Disturb();
    queue_.At(stalled_until_, [this] { ResumeService(); });
  } else if (kind < 92) {
    Drain(node);
  } else if (kind < 97) {
    node->SignalAgent(rng_.Chance(50) ? SIGUSR2 : SIGTERM);
  } else if (kind < 98) {
    if (rng_.Chance(10)) node->SignalAgent(SIGINT);
  } else {
    node->CrashAgent();  // and back before its loss may be noticed, but not before its keeper is
                         // done
    queue_.After(FaultTime(70 + rng_.Below(200)), [node] { node->StartAgent(); });
  }
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
void ClusterSim::FailOne(SimNode* node) {
  const std::optional<Generation> generation = node->live_generation();
  if (!generation) return;
  if (rng_.Chance(25)) return node->FailWorker(SIGKILL, "");
  outside_kills_.OnOwnFailure(*generation);
  node->FailWorker(rng_.Chance(50) ? SIGSEGV : 0, "ValueError: NaN loss");
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
  // A hang that nothing else ends.
  if (program_ != Program::kTrains || !rng_.Chance(30)) return;
  HangWorker(nodes_[rng_.Below(nodes_.size())].get());
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
void ClusterSim::Drain(SimNode* node) {
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
  queue_.After(FaultTime(rng_.Below(8000)), undo);
}

}  // namespace ddprun::sim
