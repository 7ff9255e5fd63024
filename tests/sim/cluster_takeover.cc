#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster_sim.h"
#include "tests/support/trace_text.h"

// Two services of one job at once: another service has the job, and the former one doesn't know.
namespace ddprun::sim {

using rendezvous::CloseStream;
using rendezvous::Effect;
using rendezvous::Event;

namespace {

// The lease of a service's leadership in etcd. A service beside a shared folder has none, and ends
// when it writes.
constexpr absl::Duration kLeadership = absl::Seconds(2);

absl::Duration TakeoverTime(uint64_t ms) { return absl::Milliseconds(static_cast<int64_t>(ms)); }

}  // namespace

void ClusterSim::TakeOver(const PlannedFault& fault) {
  const bool busy = queue_.now() < stalled_until_ || !stalled_events_.empty();
  const bool hosted = std::any_of(nodes_.begin(), nodes_.end(),
                                  [](const auto& node) { return node->hosts_service(); });
  if (!service_->up() || !service_->may_die() || busy || hosted || ended_) return;
  ++result_.takeovers;
  const size_t before = leader_;
  service_->BecomeFormer();
  std::unique_ptr<SimService> successor = Successor(*service_);
  auto former = std::make_unique<Former>();
  former->service = std::exchange(service_, std::move(successor));
  former->service->Follow(HooksOfFormer(before));
  former->frozen = fault.detail == 1;
  former->timer = std::make_unique<EventQueue::Timer>(
      [this, before] { OnFormerEvent(before, rendezvous::TimerDue{}); });
  const Instant due = former->service->machine().NextDeadline();
  if (!due.is_infinite()) queue_.Arm(due, former->timer.get());
  formers_[before] = std::move(former);
  leader_ = network_->AddService();
  ForgetLife();
  queue_.After(fault.lasts, [this, before] { ThawFormer(before); });
  for (const auto& node : nodes_) {
    node->Touch();
    queue_.After(TakeoverTime(rng_.Below(rng_.Chance(50) ? 50 : 3000)),
                 [this, each = node.get(), leader = leader_] { HearOfLeader(each, leader); });
  }
  queue_.After(TakeoverTime(20 + rng_.Below(200)),
               [this] { StartService(absl::Milliseconds(100)); });
}

std::unique_ptr<SimService> ClusterSim::Successor(const SimService& former) {
  return std::make_unique<SimService>(&queue_, &rng_, storage_, store_.get(),
                                      /*few=*/!result_.large, &former, HooksOfService());
}

SimService::Hooks ClusterSim::HooksOfFormer(size_t number) {
  return SimService::Hooks{
      .stepped =
          [this](const Event& event, const std::vector<Effect>& /*effects*/) {
            const auto* received = std::get_if<rendezvous::MessageReceived>(&event);
            if (received != nullptr) Hear(received->message, received->stream);
          },
      .carry_out = [this](const Effect& effect, Instant /*decided*/) { TakeFormerEffect(effect); },
      .owed = nullptr,
      .died = nullptr,
      .fenced = [this, number] { EndFormer(number); },
      .broken = [this](const std::string& what) { Break(what); },
  };
}

// The node leaves the former service, whatever that service says.
void ClusterSim::HearOfLeader(SimNode* node, size_t service) {
  if (network_->leader(node->number()) >= service) return;
  network_->SetLeader(node->number(), service);
  node->Touch();
  if (node->has_stream() && network_->ServiceOf(node->stream()) != service) node->BreakStream();
  if (sabotage_ != Sabotage::kGoBack) return;
  queue_.After(absl::Milliseconds(500), [this, node, service] {
    network_->SetLeader(node->number(), service - 1);
    node->BreakStream();
  });
}

void ClusterSim::OnFormerEvent(size_t number, const Event& event) {
  Former& former = *formers_.at(number);
  if (!former.service->up()) return;
  if (former.frozen) return former.events.push_back(event);
  StepFormer(former, event);
}

void ClusterSim::StepFormer(Former& former, const Event& event) {
  if (trace_ && !std::holds_alternative<rendezvous::TimerDue>(event)) {
    const std::string text = rendezvous::TraceText(event);
    if (text.find("renewal") == std::string::npos) Trace("(former) ", text);
  }
  former.service->Step(event);
  if (!former.service->up()) return;
  const Instant at = former.service->machine().NextDeadline();
  if (!at.is_infinite()) queue_.Arm(at, former.timer.get());
}

// The former service takes all events that came meanwhile. Its lease may be over, which it learns a
// moment later.
void ClusterSim::ThawFormer(size_t number) {
  Former& former = *formers_.at(number);
  former.frozen = false;
  for (const Event& event : std::exchange(former.events, {})) {
    if (former.service->up()) StepFormer(former, event);
  }
  if (!former.service->up() || !rng_.Chance(50)) return;
  queue_.After(absl::Microseconds(static_cast<int64_t>(
                   rng_.Below(static_cast<uint64_t>(absl::ToInt64Microseconds(kLeadership))))),
               [this, number] { EndFormer(number); });
}

void ClusterSim::EndFormer(size_t number) {
  Trace("the former service ends");
  formers_.at(number)->service->End();
  network_->KillService(number);
}

void ClusterSim::TakeFormerEffect(const Effect& effect) {
  const auto* send = std::get_if<rendezvous::Send>(&effect);
  const bool probes = send != nullptr && std::holds_alternative<rendezvous::Probe>(*send->message);
  if (trace_ && !probes) Trace("(former) ", rendezvous::TraceText(effect));
  if (send != nullptr) {
    const std::string broken =
        decisions_.OnTold(NodeOf(send->stream)->id().value(), *send->message);
    if (!broken.empty()) Break(broken);
    const auto* verdict = std::get_if<rendezvous::Verdict>(&*send->message);
    if (verdict != nullptr) OnVerdictTold(*verdict);
    Deliver(send->stream, send->message);
  } else if (const auto* close = std::get_if<CloseStream>(&effect)) {
    network_->End(close->stream.value(), close->status);
  }
}

// An agent that knows of a later service obeys no earlier one.
void ClusterSim::CheckLeader(int node, uint64_t stream, const rendezvous::ServiceMessage& message) {
  if (!std::holds_alternative<rendezvous::Welcome>(message)) return;
  const SimNode& agent = *nodes_[static_cast<size_t>(node)];
  if (agent.stream() != stream) return;
  size_t& last = welcomed_by_[agent.incarnation()];
  const size_t service = network_->ServiceOf(stream);
  if (service < last) {
    Break(absl::StrCat("the agent of ", agent.id().value(), " goes back to an earlier service"));
  }
  last = service;
}

// The stream over which the service that has the job can hear the node; 0 = there is none.
uint64_t ClusterSim::LiveStream(const SimNode& node) const {
  const uint64_t stream = network_->IsCut(node.number()) ? 0 : node.live_stream();
  return stream != 0 && network_->ServiceOf(stream) == leader_ ? stream : 0;
}

}  // namespace ddprun::sim
