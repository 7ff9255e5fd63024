#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/sim/cluster_sim.h"
#include "tests/support/trace_text.h"

// The service of a simulated cluster: which events reach it, and what its effects do.
namespace ddprun::sim {

using rendezvous::AgentMessage;
using rendezvous::Assignment;
using rendezvous::CloseStream;
using rendezvous::Effect;
using rendezvous::Event;
using rendezvous::Generation;
using rendezvous::Note;
using rendezvous::ServiceMessage;
using rendezvous::SharedMessage;
using rendezvous::StreamKey;

namespace {

// How long the service takes after the last fault: it reads what was queued, and knows which nodes
// are lost.
constexpr absl::Duration kAftermath = absl::Seconds(3);

}  // namespace

void ClusterSim::OnServiceEvent(const Event& event) {
  if (!service_->up()) return;
  if (queue_.now() < stalled_until_ || !stalled_events_.empty()) {
    stalled_events_.push_back(event);
    return;
  }
  StepService(event);
}

void ClusterSim::StepService(const Event& event) {
  if (trace_ && !std::holds_alternative<rendezvous::TimerDue>(event)) {
    const std::string text = rendezvous::TraceText(event);
    if (text.find("renewal") == std::string::npos) Trace(text);
  }
  ObserveNodes();
  if (stepped_since_) due_ = service_->machine().NextDeadline();
  was_due_ = due_ <= queue_.now();
  service_->Step(event);
  ArmServiceTimer();
}

void ClusterSim::Hear(const AgentMessage& message, StreamKey stream) {
  const auto [known, fresh] = headers_.try_emplace(stream);
  AgentMessage& header = known->second;
  if (fresh) {
    header.run_id = message.run_id;
    header.node_id = message.node_id;
    header.incarnation = message.incarnation;
    header.stream = message.stream;
  }
  header.term = message.term;
  header.sequence = std::max(header.sequence, message.sequence);
}

// Checks what was decided, whether or not its effects are carried out.
void ClusterSim::OnServiceStepped(const Event& event, const std::vector<Effect>& effects) {
  stepped_since_ = true;
  if (digest_ != nullptr) digest_->Add(queue_.now(), event, effects, service_->machine());
  const auto* received = std::get_if<rendezvous::MessageReceived>(&event);
  if (received != nullptr) Hear(received->message, received->stream);
  if (received != nullptr && std::holds_alternative<rendezvous::Join>(received->message.body)) {
    const std::string broken = CheckJoinAnswered(received->stream, effects);
    if (!broken.empty()) Break(broken);
  }
  std::string twice = repeats_.OnStep(event, effects, was_due_);
  if (twice.empty() && !strangers_.empty()) twice = CheckIntrusion(event, effects);
  if (twice.empty()) twice = probe_rate_.OnStep(queue_.now(), effects);
  if (!twice.empty()) Break(twice);
  for (const Effect& effect : effects) {
    if (const auto* close = std::get_if<CloseStream>(&effect)) refused_.insert(close->stream);
    const auto* note = std::get_if<Note>(&effect);
    if (note == nullptr) continue;
    if (Is(*note, "verdict")) verdict_decided_ = queue_.now();
    if (Is(*note, "node_lost") || Is(*note, "node_left")) {
      lost_.insert(NoteField(*note, "node"));
    }
    if (Is(*note, "generation")) CheckFormed(effects);
  }
  shown_.OnStep(event, effects);
  CheckPrecision(event, effects);
}

void ClusterSim::ArmServiceTimer() {
  if (!service_->up()) return;
  const Instant at = due_ = service_->machine().NextDeadline();
  stepped_since_ = false;
  if (!at.is_infinite()) queue_.Arm(std::max(at, stalled_until_), &service_timer_);
}

void ClusterSim::OnServiceTimer() {
  if (queue_.now() >= stalled_until_ && service_->up()) StepService(rendezvous::TimerDue{});
}

void ClusterSim::TakeServiceEffect(const Effect& effect, Instant decided) {
  ++result_.messages;
  if (!strangers_.empty()) AnswerStranger(effect);
  if (const auto* send = std::get_if<rendezvous::Send>(&effect)) {
    if (trace_ && !std::holds_alternative<rendezvous::Probe>(*send->message)) {
      Trace(rendezvous::TraceText(effect));
    }
    return SendToAgent(send->stream, send->message);
  }
  if (trace_) Trace(rendezvous::TraceText(effect));
  if (const auto* close = std::get_if<CloseStream>(&effect)) {
    if (sabotage_ == Sabotage::kForgetVerdict && close->status.ok()) return;
    network_->End(close->stream.value(), close->status);
  } else if (const auto* note = std::get_if<Note>(&effect)) {
    OnNote(*note, decided);
  } else if (std::holds_alternative<rendezvous::Ended>(effect)) {
    ended_ = true;
    if (const std::string broken = CheckHeard(); !broken.empty()) Break(broken);
    network_->SetServiceDown();
  }
}

void ClusterSim::SendToAgent(StreamKey stream, SharedMessage shared) {
  if (!std::holds_alternative<rendezvous::Probe>(*shared)) {
    const std::string broken = decisions_.OnTold(headers_[stream].node_id.value(), *shared);
    if (!broken.empty()) Break(broken);
  }
  if (const auto* stop = std::get_if<rendezvous::StopWorkers>(&*shared)) {
    if (sabotage_ == Sabotage::kEarlyStopped) ForgeStopped(stream, stop->generation);
  } else if (std::holds_alternative<rendezvous::HungWorkers>(*shared)) {
    if (sabotage_ == Sabotage::kForgetHung) return;
  } else if (const auto* verdict = std::get_if<rendezvous::Verdict>(&*shared)) {
    OnVerdictTold(*verdict);
    if (sabotage_ == Sabotage::kForgetVerdict) return;
    const std::optional<uint64_t> dies = std::exchange(dies_at_verdict_, std::nullopt);
    if (dies && service_->may_die()) service_->DieAfter(*dies);
  }
  const bool changes = sabotage_ == Sabotage::kDuplicateRank ||
                       sabotage_ == Sabotage::kOtherStopStep || sabotage_ == Sabotage::kConfirmAll;
  if (!changes) return Deliver(stream, std::move(shared));
  ServiceMessage message = *shared;
  if (auto* assignment = std::get_if<Assignment>(&message)) {
    if (sabotage_ == Sabotage::kDuplicateRank && assignment->group_rank == 1) {
      assignment->base_rank = 0;
    }
  } else if (auto* prepare = std::get_if<rendezvous::PrepareStop>(&message)) {
    const bool second = headers_[stream].node_id.value() == "n1";
    if (sabotage_ == Sabotage::kOtherStopStep && second && prepare->step > 0) ++prepare->step;
  } else if (auto* probe = std::get_if<rendezvous::Probe>(&message)) {
    if (sabotage_ == Sabotage::kConfirmAll) probe->processed_sequence = headers_[stream].sequence;
  }
  Deliver(stream, rendezvous::ShareMessage(std::move(message)));
}

// Sends a message to an agent; a probe goes over all of the agent's connections.
void ClusterSim::Deliver(StreamKey stream, SharedMessage message) {
  const auto* probe = std::get_if<rendezvous::Probe>(&*message);
  // A probe that keeps its place in the order answers a Join, before there is another connection.
  if (beside_ && probe != nullptr && !probe->in_order) {
    network_->SendToAgent(stream.value(), message, /*beside=*/true);
  }
  network_->SendToAgent(stream.value(), std::move(message));
}

void ClusterSim::OnVerdictTold(const rendezvous::Verdict& verdict) {
  if (verdict_) return;
  verdict_ = verdict;
  result_.rule = verdict.rule;
  result_.restarts = verdict.restart_count;
  NoteWhoIsOwedTheVerdict();
  const std::string broken = truth_.OnVerdict(verdict, world_size_);
  if (!broken.empty()) Break(broken);
}

// The stream of an unauthenticated peer isn't one of the network's.
void ClusterSim::AnswerStranger(const Effect& effect) {
  const auto* close = std::get_if<CloseStream>(&effect);
  if (close == nullptr || strangers_.erase(close->stream) == 0) return;
  queue_.After(absl::Milliseconds(1), [this, stream = close->stream] {
    OnServiceEvent(rendezvous::StreamClosed{stream});
  });
}

std::string ClusterSim::CheckIntrusion(const Event& event,
                                       const std::vector<Effect>& effects) const {
  const auto* received = std::get_if<rendezvous::MessageReceived>(&event);
  const auto stranger = received == nullptr ? strangers_.end() : strangers_.find(received->stream);
  if (stranger == strangers_.end()) return "";
  for (const Effect& effect : effects) {
    const auto* close = std::get_if<CloseStream>(&effect);
    if (close == nullptr || close->stream != received->stream) continue;
    if (close->status.code() == stranger->second) return "";
    return absl::StrCat("a stranger is refused in another way: ", close->status.ToString());
  }
  return "a stranger isn't refused";
}

const SimNode* ClusterSim::NodeOf(StreamKey stream) { return NodeCalled(headers_[stream].node_id); }

// Node 3 is n3.
const SimNode* ClusterSim::NodeCalled(const rendezvous::NodeId& id) const {
  size_t number = 0;
  const bool known = absl::SimpleAtoi(id.value().substr(1), &number) && number < nodes_.size();
  DDPRUN_CHECK(known, absl::StrCat("nobody is called ", id.value()));
  return nodes_[number].get();
}

// Once the last fault has been digested, each node that has a stream when the job ends must hear
// how.
void ClusterSim::NoteWhoIsOwedTheVerdict() {
  if (queue_.now() < Instant() + safety_ + kAftermath) return;
  for (const rendezvous::NodeView& view : service_->machine().View(queue_.now()).nodes) {
    if (view.state == "draining") continue;
    for (const auto& node : nodes_) {
      const bool same = node->id() == view.node_id && node->pid() == view.info.agent_pid;
      // A node that has just lost its stream comes back in time (R8), if a slow write left any
      // time.
      const bool in_time = queue_.now() < verdict_decided_ + absl::Seconds(1);
      const bool listens = view.state == "unreachable" ? in_time && !BackSince(*node).is_infinite()
                                                       : node->listens();
      if (same && listens) owed_verdict_.insert(node->number());
    }
  }
}

void ClusterSim::ForgeStopped(StreamKey stream, Generation generation) {
  AgentMessage forged = headers_[stream];
  forged.generation = generation;
  ++forged.sequence;
  forged.body = rendezvous::GroupStopped{.failures = {}, .clean = true, .master_port = 9};
  queue_.After(absl::ZeroDuration(), [this, stream, forged] {
    OnServiceEvent(rendezvous::MessageReceived{stream, forged});
  });
}

}  // namespace ddprun::sim
