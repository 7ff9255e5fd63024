#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "rendezvous/server/server_impl.h"

// Streams that carry heartbeats beside an agent's stream, over connections of their own: a segment
// lost on one delays only that one. The core doesn't know them: its probes go over all, and a
// renewal counts from any of them.
namespace ddprun::rendezvous {
namespace {

// An agent has two at most, and more only while broken ones haven't been noticed.
constexpr size_t kHeartbeatsMax = 8;

}  // namespace

void ServerImpl::OnHeartbeatStream(StreamEntry& entry, const Heartbeat& heartbeat) {
  const auto found = heartbeat_keys_.find(heartbeat.key);
  if (found == heartbeat_keys_.end()) {
    return RefuseFirst(
        entry, "heartbeat_of_nobody",
        absl::UnavailableError("the agent's stream that these heartbeats belong to is not open"));
  }
  StreamEntry& owner = streams_.at(found->second);
  if (owner.heartbeats.size() >= kHeartbeatsMax) {
    return Refuse(entry, "too_many_heartbeats",
                  absl::ResourceExhaustedError(absl::StrCat("an agent may have ", kHeartbeatsMax,
                                                            " streams of heartbeats at a time")));
  }
  entry.heartbeat_of = found->second;
  owner.heartbeats.push_back(entry.stream->key());
  Known(entry);
}

void ServerImpl::OnHeartbeat(StreamEntry& entry, AgentMessage message) {
  if (!std::holds_alternative<Renewal>(message.body)) {
    return Refuse(
        entry, "no_renewal",
        absl::InvalidArgumentError("a stream of heartbeats carries nothing but Renewals"));
  }
  const StreamEntry& owner = streams_.at(*entry.heartbeat_of);
  owner.job->Step(MessageReceived{.stream = *entry.heartbeat_of, .message = std::move(message)});
}

// Ends the heartbeats beside an agent's stream and erases its key, so that no later stream can use
// it. A heartbeat stream is only removed from its agent's.
void ServerImpl::EndHeartbeats(StreamEntry& entry) {
  if (entry.heartbeat_of.has_value()) {
    if (const auto owner = streams_.find(*entry.heartbeat_of); owner != streams_.end()) {
      std::erase(owner->second.heartbeats, entry.stream->key());
    }
    return;
  }
  heartbeat_keys_.erase(std::exchange(entry.heartbeat_key, 0));
  for (const StreamKey key : std::exchange(entry.heartbeats, {})) {
    const auto found = streams_.find(key);
    if (found == streams_.end()) continue;
    found->second.stream->Close(absl::UnavailableError("the agent's stream has ended"));
  }
}

// Returns false if too much waits for the agent already.
bool ServerImpl::Send(StreamEntry& entry, const SharedMessage& message) {
  if (const Welcome* welcome = std::get_if<Welcome>(message.get()); welcome != nullptr) {
    while (entry.heartbeat_key == 0 || heartbeat_keys_.contains(entry.heartbeat_key)) {
      entry.heartbeat_key = RandomNumber();
    }
    heartbeat_keys_[entry.heartbeat_key] = entry.stream->key();
    Welcome with_key = *welcome;
    with_key.heartbeat_key = entry.heartbeat_key;
    Known(entry);
    return entry.stream->Send(with_key);
  }
  const grpc::ByteBuffer bytes = encoded_.Encode(message);
  if (std::holds_alternative<Probe>(*message)) {
    for (const StreamKey key : entry.heartbeats) {
      // A stuck stream gets no further probe; its end comes by itself.
      [[maybe_unused]] const bool taken = streams_.at(key).stream->Send(bytes);
    }
  }
  return entry.stream->Send(bytes);
}

}  // namespace ddprun::rendezvous
