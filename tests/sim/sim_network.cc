#include "tests/sim/sim_network.h"

#include <algorithm>
#include <utility>

namespace ddprun::sim {

namespace {

// The least delay of a message, and the most that a local network adds.
constexpr int64_t kLeastUs = 50;
constexpr int64_t kFastUs = 3000;
// The delay of a heartbeat with a segment that was lost more than once.
constexpr int64_t kLateUs = 1'900'000;

}  // namespace

SimNetwork::SimNetwork(EventQueue* queue, Rng* rng, int nodes, Ends ends)
    : queue_(queue),
      rng_(rng),
      ends_(std::move(ends)),
      streams_of_(static_cast<size_t>(nodes)),
      cuts_(static_cast<size_t>(nodes)),
      slow_until_(static_cast<size_t>(nodes)),
      leaders_(static_cast<size_t>(nodes)) {}

// Most messages have the delay of a local network, some that of a retransmission, and some
// heartbeats a longer one.
absl::Duration SimNetwork::Delay(int node, bool beside) {
  if (calm_) return absl::Milliseconds(1);
  const bool slow = rng_->Chance(2);
  const bool late = beside && rng_->Chance(3);
  const int64_t most_us = late ? kLateUs : slow ? slowest_us_ : kFastUs;
  const int64_t beyond_us = static_cast<int64_t>(rng_->Below(static_cast<uint64_t>(most_us)));
  const absl::Duration delay = absl::Microseconds(kLeastUs + beyond_us);
  if (beyond_us > kFastUs && !beside) {
    Instant& until = slow_until_[static_cast<size_t>(node)];
    until = std::max(until, queue_->now() + delay);
  }
  return delay;
}

bool SimNetwork::Holds(int node, int lane) const {
  return lane % 2 == kUp ? cut_of(node).up : cut_of(node).down;
}

void SimNetwork::Connect(int node, uint64_t epoch) {
  queue_->After(Delay(node), [this, node, epoch] {
    if (IsCut(node) || service_down_) {
      queue_->After(absl::Seconds(1), [this, node, epoch] {
        ends_.agent_closed(node, epoch, 0, absl::UnavailableError("connect: timed out"));
      });
      return;
    }
    if (dead_[leader(node)]) {
      return ends_.agent_closed(node, epoch, 0, absl::UnavailableError("connect: refused"));
    }
    Stream& stream = *streams_.emplace_back(std::make_unique<Stream>());
    stream.node = node;
    stream.service = leader(node);
    stream.epoch = epoch;
    streams_of_[static_cast<size_t>(node)].push_back(streams_.size());
    ends_.opened(node, epoch, streams_.size());
  });
}

// Delivers after all earlier messages of the same direction.
void SimNetwork::Deliver(uint64_t key, Lane lane, Sent sent) {
  Stream* const stream = Find(key);
  if (stream == nullptr) return;
  Direction& direction = stream->lanes[lane];
  const bool beside = lane == kUpBeside || lane == kDownBeside;
  direction.last = std::max(direction.last, queue_->now() + Delay(stream->node, beside));
  direction.sent.push_back(std::move(sent));
  PostArrival(direction.last, key, lane);
}

void SimNetwork::PostArrival(Instant at, uint64_t key, Lane lane) {
  queue_->Post(at, this, key * kLanes + lane);
}

void SimNetwork::OnDue(uint64_t arrival) {
  const uint64_t key = arrival / kLanes;
  const auto lane = static_cast<Lane>(arrival % kLanes);
  Stream& stream = *Find(key);
  Direction& direction = stream.lanes[lane];
  if (Holds(stream.node, lane)) {
    ++direction.held;
    return;
  }
  Sent sent = std::move(direction.sent[direction.arrived]);
  if (++direction.arrived == direction.sent.size()) {
    direction.sent.clear();
    direction.arrived = 0;
  }
  Take(key, lane, sent);
}

void SimNetwork::Take(uint64_t key, Lane lane, Sent& sent) {
  if (auto* call = std::get_if<Call>(&sent)) return (*call)();
  const Stream& stream = *Find(key);
  if (auto* up = std::get_if<std::unique_ptr<const rendezvous::Event>>(&sent)) {
    if (stream.service_knows) ends_.to_service(stream.service, **up);
  } else if (stream.agent_knows) {
    ends_.to_agent(stream.node, stream.epoch, key, *std::get<rendezvous::SharedMessage>(sent),
                   lane == kDownBeside);
  }
}

void SimNetwork::SetCut(int node, bool to_service, bool to_agent) {
  Cut& cut = cuts_[static_cast<size_t>(node)];
  cut = {.up = to_service, .down = to_agent, .changes = cut.changes + 1, .at = queue_->now()};
  for (const uint64_t key : streams_of_[static_cast<size_t>(node)]) {
    Stream& stream = *Find(key);
    for (const Lane lane : {kUp, kDown, kUpBeside, kDownBeside}) {
      if (stream.lanes[lane].held == 0 || Holds(node, lane)) continue;
      for (uint64_t i = std::exchange(stream.lanes[lane].held, 0); i > 0; --i) {
        PostArrival(queue_->now(), key, lane);
      }
    }
  }
}

void SimNetwork::SendToService(uint64_t stream, rendezvous::AgentMessage&& message, bool beside) {
  Deliver(
      stream, beside ? kUpBeside : kUp,
      std::make_unique<const rendezvous::Event>(std::in_place_type<rendezvous::MessageReceived>,
                                                rendezvous::StreamKey(stream), std::move(message)));
}

void SimNetwork::SendToAgent(uint64_t stream, rendezvous::SharedMessage message, bool beside) {
  Deliver(stream, beside ? kDownBeside : kDown, std::move(message));
}

void SimNetwork::NotifyAgentClosed(uint64_t key, const absl::Status& status) {
  Stream& stream = *Find(key);
  if (!std::exchange(stream.agent_knows, false)) return;
  ends_.agent_closed(stream.node, stream.epoch, key, status);
}

void SimNetwork::NotifyServiceClosed(uint64_t key, bool finished) {
  Stream& stream = *Find(key);
  if (!std::exchange(stream.service_knows, false)) return;
  ends_.to_service(stream.service, rendezvous::StreamClosed{rendezvous::StreamKey(key), finished});
}

void SimNetwork::KillService(size_t service) {
  dead_.at(service) = true;
  for (uint64_t key = 1; key <= streams_.size(); ++key) {
    if (streams_[key - 1]->service != service) continue;
    if (!std::exchange(streams_[key - 1]->service_knows, false)) continue;
    Deliver(key, kDown, Call([this, key] {
              NotifyAgentClosed(key, absl::UnavailableError("connection reset by peer"));
            }));
  }
}

void SimNetwork::Finish(uint64_t stream) {
  Deliver(stream, kUp, Call([this, stream] {
            NotifyServiceClosed(stream, /*finished=*/true);
            Deliver(stream, kDown,
                    Call([this, stream] { NotifyAgentClosed(stream, absl::OkStatus()); }));
          }));
}

void SimNetwork::End(uint64_t stream, absl::Status status) {
  Stream* const ended = Find(stream);
  if (ended == nullptr) return;
  Deliver(stream, kDown, Call([this, stream, status] { NotifyAgentClosed(stream, status); }));
  queue_->After(Delay(ended->node), [this, stream] { NotifyServiceClosed(stream, true); });
}

void SimNetwork::Break(uint64_t stream, absl::Duration unnoticed) {
  Deliver(stream, kUp, Call([this, stream] { NotifyServiceClosed(stream, /*finished=*/false); }));
  queue_->After(unnoticed, [this, stream] {
    Deliver(stream, kDown, Call([this, stream] {
              NotifyAgentClosed(stream, absl::UnavailableError("connection reset by peer"));
            }));
  });
}

}  // namespace ddprun::sim
