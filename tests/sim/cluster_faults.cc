#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_sim.h"

// Injects the faults of a plan into a simulated cluster.
namespace ddprun::sim {

using rendezvous::Event;
using rendezvous::Generation;
using rendezvous::StreamKey;

namespace {

// As launcher/service/service_child.h has them for a service that could not start.
constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(1);

absl::Duration FaultTime(uint64_t ms) { return absl::Milliseconds(static_cast<int64_t>(ms)); }

}  // namespace

void ClusterSim::ScheduleFaults() {
  std::vector<Instant> at;
  for (const PlannedFault& fault : plan_.faults) at.push_back(fault.at);
  queue_.PostAll(at, this);
}

// Params: after: effects; 0 = now.
void ClusterSim::KillService(uint64_t after) {
  if (!service_->up() || !service_->may_die() || queue_.now() < stalled_until_ || ended_) return;
  if (after == 0) return service_->Die();
  service_->DieAfter(after - 1);
}

void ClusterSim::OnServiceDied() {
  Trace("the service dies, life ", service_->life());
  ++result_.deaths;
  ForgetLife();
  network_->KillService(leader_);
  queue_.After(FaultTime(20 + rng_.Below(rng_.Chance(80) ? 200 : 2000)),
               [this] { StartService(kFirstPause); });
}

// The service's death may have taken with it what it knew.
void ClusterSim::ForgetLife() {
  EventQueue::Disarm(&service_timer_);
  shown_.Forget();
  done_.Forget();
  isolation_.Forget();
  excuses_.Forget();
  repeats_.Forget();
  DisturbLooks();
}

// The agent tries again and again to start a service with a record that can't be read (R5).
void ClusterSim::StartService(absl::Duration pause) {
  Trace("the service starts again");
  if (!service_->Start()) {
    ++result_.unread;
    const absl::Duration next = std::min(2 * pause, kLongestPause);
    queue_.After(pause, [this, next] { StartService(next); });
    return;
  }
  if (const std::string broken = service_->CheckBeginning(); !broken.empty()) Break(broken);
  network_->StartService(leader_);
  pids_.clear();  // a node that isn't in the record never was there
  for (const auto& each : service_->machine().View(queue_.now()).nodes) {
    pids_[each.node_id.value()] = each.info.agent_pid;
  }
  DisturbLooks();
  ArmServiceTimer();
}

// Makes the record unreadable: no service starts from it, nor without it.
void ClusterSim::DamageRecord(const PlannedFault& fault) {
  if (!service_->up() || !service_->may_die() || queue_.now() < stalled_until_ || ended_) return;
  service_->Damage(static_cast<RecordDamage>(fault.detail));
  service_->Die();
  if (program_ == Program::kLosesRecord) {
    // Every agent of the old term ends, and there are no others.
    ended_ = true;
    return;
  }
  queue_.After(fault.lasts, [this] { service_->Damage(RecordDamage::kNone); });
}

void ClusterSim::Fault(const PlannedFault& fault) {
  if (ended_) return;
  if (trace_) Trace("FAULT ", Describe(fault));
  SimNode* node = nodes_[fault.node].get();
  switch (fault.kind) {
    case FaultKind::kKillService:
      return KillService(fault.detail);
    case FaultKind::kCrashAgent:
    case FaultKind::kCrashAndBack:
    case FaultKind::kFlap:
    case FaultKind::kLosePower:
    case FaultKind::kCut:
    case FaultKind::kDrain:
    case FaultKind::kSignalAgent:
      // A fault that ends the service's node, or cuts it off, would end the service for good.
      if (node->hosts_service()) return;
      FaultOfMachine(node, fault);
      return ObserveNodes();
    case FaultKind::kHangWorker:
      return HangWorker(node);
    case FaultKind::kFailWorker:
      return FailOne(node, fault.detail);
    case FaultKind::kBreakStream:
      return node->BreakStream();
    case FaultKind::kCutServiceOff:
      return CutServiceOff(fault.lasts);
    case FaultKind::kRepeat:
      return node->SayAgain();
    case FaultKind::kIntrude:
      return LetIn(node, static_cast<Stranger>(fault.detail));
    case FaultKind::kFreezeAgent:
      node->SetFrozen(true);
      ObserveNodes();
      return queue_.After(fault.lasts, [node] { node->SetFrozen(false); });
    case FaultKind::kStallService:
      stalled_until_ = std::max(stalled_until_, queue_.now() + fault.lasts);
      DisturbLooks();
      return queue_.At(stalled_until_, [this] { ResumeService(); });
    case FaultKind::kKillAtVerdict:
      dies_at_verdict_ = fault.detail;
      return;
    case FaultKind::kDamageRecord:
      return DamageRecord(fault);
    case FaultKind::kTakeOver:
      return TakeOver(fault);
  }
}

void ClusterSim::FaultOfMachine(SimNode* node, const PlannedFault& fault) {
  if (fault.kind == FaultKind::kFlap) return Flap(node, fault, queue_.now() + fault.lasts);
  if (fault.kind == FaultKind::kLosePower) return node->LosePower();
  if (fault.kind == FaultKind::kCut) return Cut(node, fault);
  if (fault.kind == FaultKind::kDrain) return Drain(node, fault.lasts);
  if (fault.kind == FaultKind::kSignalAgent) {
    return node->SignalAgent(static_cast<int>(fault.detail));
  }
  if (fault.kind == FaultKind::kCrashAgent) return Crash(node);
  node->CrashAgent();
  queue_.After(FaultTime(fault.detail), [node] { node->StartAgent(); });
}

void ClusterSim::Crash(SimNode* node) {
  if (node->live_generation()) FailPeers(node->number(), *node->live_generation());
  node->CrashAgent();
}

void ClusterSim::Flap(SimNode* node, const PlannedFault& fault, Instant until) {
  if (verdict_ || !faults_on_ || queue_.now() >= until) return;
  node->agent_runs() ? Crash(node) : node->StartAgent();
  queue_.After(FaultTime(fault.detail), [this, node, fault, until] { Flap(node, fault, until); });
}

// Sends a message that must be refused, on a stream that isn't the network's.
void ClusterSim::LetIn(SimNode* node, Stranger kind) {
  const bool busy = queue_.now() < stalled_until_ || !stalled_events_.empty();
  if (!service_->up() || busy || !node->last_join()) return;
  std::optional<Intrusion> intrusion =
      Intrude(kind, *node->last_join(), service_->machine().View(queue_.now()), result_.intrusions);
  if (!intrusion) return;
  constexpr uint64_t kFirstStream = uint64_t{1} << 40;
  const StreamKey stream(kFirstStream + result_.intrusions++);
  strangers_[stream] = intrusion->refusal;
  OnServiceEvent(rendezvous::MessageReceived{stream, std::move(intrusion->message)});
}

// After a disturbance all waits of the checkers begin anew.
void ClusterSim::DisturbLooks() {
  growth_.Disturb();
  losses_.Disturb(std::max(queue_.now(), stalled_until_));
  successes_.Disturb(std::max(queue_.now(), stalled_until_));
}

void ClusterSim::SetCut(SimNode* node, bool to_service, bool to_agent) {
  network_->SetCut(node->number(), to_service, to_agent);
  node->Touch();
}

void ClusterSim::Cut(SimNode* node, const PlannedFault& fault) {
  SetCut(node, fault.detail != 0, fault.detail != 1);
  isolation_.OnEnd();  // an isolation that went on until now ends by this cut
  const bool resets = fault.detail == 3;
  const absl::Duration unnoticed = resets ? FaultTime(rng_.Below(1500)) : absl::ZeroDuration();
  queue_.After(fault.lasts, [this, node, resets, unnoticed] {
    Trace("node ", node->number(), " is healed");
    isolation_.OnEnd();
    SetCut(node, false, false);
    if (resets) node->BreakStream(unnoticed);
    ObserveNodes();
  });
}

void ClusterSim::CutServiceOff(absl::Duration lasts) {
  Trace("the service is cut off from all nodes");
  ObserveNodes();
  std::set<std::string> sound;
  bool hosted = false;
  for (const auto& node : nodes_) {
    hosted = hosted || node->hosts_service();
    if (node->hosts_service()) continue;  // its messages cross no network
    const Instant since = std::max(leases_.SoundSince(node->number()), losses_.disturbed());
    const bool heard = queue_.now() >= since + job_.lease;
    if (heard) sound.insert(node->id().value());
    SetCut(node.get(), true, true);
  }
  ObserveNodes();
  isolation_.OnCutOff(std::move(sound), hosted);
  queue_.After(lasts, [this] {
    Trace("the service has its network again");
    isolation_.OnEnd();
    // The connections come back one after the other, within less than a lease.
    for (const auto& node : nodes_) {
      queue_.After(FaultTime(rng_.Chance(50) ? 0 : rng_.Below(1500)), [this, &node] {
        SetCut(node.get(), false, false);
        isolation_.OnEnd();  // an isolation that began meanwhile isn't complete
        ObserveNodes();
      });
    }
  });
}

// A worker fails by a fault of its own, or is killed from outside.
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
  habits_.healed = true;
  service_->Live();
  if (program_ != Program::kLosesRecord) service_->Damage(RecordDamage::kNone);
  isolation_.OnEnd();
  for (const auto& [number, former] : formers_) {
    if (former->service->up()) EndFormer(number);
  }
  for (const auto& node : nodes_) HearOfLeader(node.get(), leader_);
  stalled_until_ = queue_.now();
  ResumeService();
  for (const auto& node : nodes_) {
    SetCut(node.get(), false, false);
    node->SetFrozen(false);
  }
}

// Somebody, or something, starts agents again while the job goes on.
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
  if (queue_.now() < stalled_until_ || resuming_) return;
  ArmServiceTimer();
  resuming_ = true;
  StepStalled();
}

// Steps the queued events one after the other, while more may arrive.
void ClusterSim::StepStalled() {
  resuming_ = !stalled_events_.empty() && queue_.now() >= stalled_until_;
  if (!resuming_) return;
  const Event event = std::move(stalled_events_.front());
  stalled_events_.pop_front();
  if (service_->up()) StepService(event);
  DisturbLooks();
  queue_.After(absl::Microseconds(static_cast<int64_t>(rng_.Below(between_us_ + 1))),
               [this] { StepStalled(); });
}

void ClusterSim::HangWorker(SimNode* node) {
  const std::optional<Generation> generation = node->live_generation();
  if (!generation) return;
  Trace("a worker of node ", node->number(), " hangs");
  outside_kills_.OnOwnFailure(*generation);
  node->HangWorker();
  for (const auto& each : nodes_) each->BecomeSuspicious(*generation);
}

// The node's machine may not join again for a while.
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
