#include "tests/sim/sim_network.h"

#include <utility>

namespace ddprun::sim {

SimNetwork::SimNetwork(EventQueue* queue, Rng* rng, Ends ends)
    : queue_(queue), rng_(rng), ends_(std::move(ends)) {}

// Mostly a local network, now and then a retransmission.
absl::Duration SimNetwork::Delay() {
  if (calm_) return absl::Milliseconds(1);
  const uint64_t most_us = rng_->Chance(2) ? 300'000 : 3'000;
  return absl::Microseconds(50 + static_cast<int64_t>(rng_->Below(most_us)));
}

bool SimNetwork::IsCut(int node) const {
  const auto cut = cuts_.find(node);
  return cut != cuts_.end() && (cut->second.up || cut->second.down);
}

uint64_t SimNetwork::heals(int node) const {
  const auto cut = cuts_.find(node);
  return cut == cuts_.end() ? 0 : cut->second.changes;
}

void SimNetwork::Connect(int node, uint64_t epoch) {
  queue_->After(Delay(), [this, node, epoch] {
    if (IsCut(node) || service_down_) {
      queue_->After(absl::Seconds(1), [this, node, epoch] {
        ends_.agent_closed(node, epoch, 0, absl::UnavailableError("connect: timed out"));
      });
      return;
    }
    if (service_dead_) {
      return ends_.agent_closed(node, epoch, 0, absl::UnavailableError("connect: refused"));
    }
    const uint64_t key = next_stream_++;
    streams_[key].node = node;
    streams_[key].epoch = epoch;
    ends_.opened(node, epoch, key);
  });
}

// Keeps the order within the direction.
void SimNetwork::Deliver(uint64_t key, bool up, std::function<void()> call) {
  const auto found = streams_.find(key);
  if (found == streams_.end()) return;
  Direction& direction = up ? found->second.up : found->second.down;
  direction.last = std::max(direction.last, queue_->now() + Delay());
  queue_->At(direction.last, [this, key, up, call = std::move(call)]() mutable {
    Arrive(key, up, std::move(call));
  });
}

void SimNetwork::Arrive(uint64_t key, bool up, std::function<void()> call) {
  const auto found = streams_.find(key);
  if (found == streams_.end()) return;
  Direction& direction = up ? found->second.up : found->second.down;
  const Cut cut = cuts_[found->second.node];
  if ((up ? cut.up : cut.down) || !direction.held.empty()) {
    direction.held.push_back(std::move(call));
    return;
  }
  call();
}

void SimNetwork::SetCut(int node, bool to_service, bool to_agent) {
  Cut& cut = cuts_[node];
  cut = {.up = to_service, .down = to_agent, .changes = cut.changes + 1};
  for (auto& [key, stream] : streams_) {
    if (stream.node != node) continue;
    for (const bool up : {true, false}) {
      if (up ? to_service : to_agent) continue;
      std::deque<std::function<void()>> held =
          std::exchange((up ? stream.up : stream.down).held, {});
      for (std::function<void()>& call : held) queue_->After(absl::ZeroDuration(), std::move(call));
    }
  }
}

void SimNetwork::SendToService(uint64_t stream, rendezvous::AgentMessage message) {
  Deliver(stream, true, [this, stream, message = std::move(message)] {
    if (streams_.at(stream).service_knows) ends_.to_service(stream, message);
  });
}

void SimNetwork::SendToAgent(uint64_t stream, rendezvous::ServiceMessage message) {
  Deliver(stream, false, [this, stream, message = std::move(message)] {
    const Stream& s = streams_.at(stream);
    if (s.agent_knows) ends_.to_agent(s.node, s.epoch, stream, message);
  });
}

void SimNetwork::TellAgentClosed(uint64_t key, const absl::Status& status) {
  Stream& stream = streams_.at(key);
  if (!std::exchange(stream.agent_knows, false)) return;
  ends_.agent_closed(stream.node, stream.epoch, key, status);
}

void SimNetwork::TellServiceClosed(uint64_t key) {
  if (std::exchange(streams_.at(key).service_knows, false)) ends_.service_closed(key);
}

void SimNetwork::KillService() {
  service_dead_ = true;
  for (auto& [key, stream] : streams_) {
    if (!std::exchange(stream.service_knows, false)) continue;
    Deliver(key, false, [this, key = key] {
      TellAgentClosed(key, absl::UnavailableError("connection reset by peer"));
    });
  }
}

void SimNetwork::Finish(uint64_t stream) {
  Deliver(stream, true, [this, stream] {
    TellServiceClosed(stream);
    Deliver(stream, false, [this, stream] { TellAgentClosed(stream, absl::OkStatus()); });
  });
}

void SimNetwork::End(uint64_t stream, absl::Status status) {
  Deliver(stream, false, [this, stream, status] { TellAgentClosed(stream, status); });
  queue_->After(Delay(), [this, stream] { TellServiceClosed(stream); });
}

void SimNetwork::Break(uint64_t stream) {
  const auto broken = [] { return absl::UnavailableError("connection reset by peer"); };
  Deliver(stream, true, [this, stream] { TellServiceClosed(stream); });
  Deliver(stream, false, [this, stream, broken] { TellAgentClosed(stream, broken()); });
}

}  // namespace ddprun::sim
