#include "tests/sim/shown_job.h"

#include <algorithm>
#include <variant>

namespace ddprun::sim {

using rendezvous::Effect;
using rendezvous::Event;

namespace {

bool IsProbe(const Effect& effect) {
  const auto* send = std::get_if<rendezvous::Send>(&effect);
  return send != nullptr && std::holds_alternative<rendezvous::Probe>(*send->message);
}

// Whether an event is a tick, or the answer to one.
bool IsRoutine(const Event& event) {
  const auto* received = std::get_if<rendezvous::MessageReceived>(&event);
  if (received == nullptr) return std::holds_alternative<rendezvous::TimerDue>(event);
  return std::holds_alternative<rendezvous::Renewal>(received->message.body);
}

}  // namespace

void ShownJob::OnStep(const Event& event, const std::vector<Effect>& effects) {
  old_ = old_ || !IsRoutine(event) || !std::all_of(effects.begin(), effects.end(), IsProbe);
}

const ShownJob::Shown& ShownJob::Look(const rendezvous::StateMachine& machine, Instant now) {
  constexpr uint64_t kAnew = 8;
  if (!old_ && ++looks_ % kAnew != 0) return shown_;
  shown_.view = machine.View(now);
  shown_.nodes.clear();
  old_ = false;
  for (const rendezvous::NodeView& each : shown_.view.nodes) {
    shown_.nodes.push_back(node_called_(each.node_id));
    old_ = old_ || each.state == "quarantined";  // a quarantine ends by itself
  }
  return shown_;
}

}  // namespace ddprun::sim
