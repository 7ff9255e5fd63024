#include "launcher/core/supervisor/service_stream.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "base/check.h"

namespace ddprun::launcher {

const rendezvous::AgentMessage& UnconfirmedEvents::Add(rendezvous::AgentMessage message) {
  message.sequence = ++last_sequence_;
  pending_.push_back(std::move(message));
  return pending_.back();
}

void UnconfirmedEvents::Confirm(uint64_t sequence) {
  if (sequence > last_sequence_) return;
  while (!pending_.empty() && pending_.front().sequence <= sequence) pending_.pop_front();
}

std::string UnconfirmedEvents::BrokenInvariant() const {
  if (pending_.size() > last_sequence_) return "more events wait than there were";
  uint64_t expected = last_sequence_ - pending_.size();
  for (const rendezvous::AgentMessage& message : pending_) {
    if (message.sequence != ++expected) return "the events that wait have a gap";
  }
  return "";
}

using rendezvous::AgentMessage;

ServiceStream::ServiceStream(AgentIdentity identity, rendezvous::JobSpec job)
    : identity_(std::move(identity)), job_(std::move(job)) {}

void ServiceStream::OnEndpoint(const EndpointFound& found) {
  identity_.node.address = found.node_address;
  identity_.node.store_address = found.store_address;
  identity_.node.hosts_endpoint = found.hosts_endpoint;
  identity_.node.hosts_service = found.hosts_service;
}

AgentMessage ServiceStream::Open(Instant now, rendezvous::GroupState state,
                                 rendezvous::Generation generation) {
  state_ = State::kOpen;
  number_ = number_.Next();
  AgentMessage message = Message(rendezvous::Join{.protocol_major = identity_.protocol_major,
                                                  .token = identity_.token,
                                                  .job = job_,
                                                  .node = identity_.node,
                                                  .group_state = state});
  if (has_joined()) std::get<rendezvous::Join>(message.body).job_age = now - job_began_;
  if (state != rendezvous::GroupState::kIdle) message.generation = generation;
  return message;
}

std::vector<AgentMessage> ServiceStream::OnWelcome(Instant now,
                                                   const rendezvous::Welcome& welcome) {
  DDPRUN_CHECK(is_open(), "only an open stream is welcomed");
  state_ = State::kWelcomed;
  // A service that has taken over the job may know less of it than the agents do.
  const Instant began = now - welcome.job_age;
  job_began_ = term_ == welcome.term ? std::min(job_began_, began) : began;
  term_ = welcome.term;
  unconfirmed_.Confirm(welcome.processed_sequence);
  std::vector<AgentMessage> again(unconfirmed_.pending().begin(), unconfirmed_.pending().end());
  for (AgentMessage& message : again) {
    message.term = term_;
    message.stream = number_;
  }
  return again;
}

AgentMessage ServiceStream::OnProbe(const rendezvous::Probe& probe) {
  unconfirmed_.Confirm(probe.processed_sequence);
  return Message(rendezvous::Renewal{probe.nonce});
}

void ServiceStream::Close() { state_ = State::kClosed; }

std::optional<AgentMessage> ServiceStream::Add(rendezvous::Generation generation,
                                               decltype(AgentMessage::body) body) {
  AgentMessage message = Message(std::move(body));
  message.generation = generation;
  const AgentMessage& kept = unconfirmed_.Add(std::move(message));
  return is_welcomed() ? std::optional(kept) : std::nullopt;
}

AgentMessage ServiceStream::Message(decltype(AgentMessage::body) body) const {
  return {.run_id = job_.run_id,
          .term = term_,
          .node_id = identity_.node_id,
          .incarnation = identity_.incarnation,
          .stream = number_,
          .body = std::move(body)};
}

std::string ServiceStream::BrokenInvariant() const {
  if (is_welcomed() && !has_joined()) return "a welcomed stream has no term";
  if (is_open() && number_ == rendezvous::StreamNumber()) return "an open stream has no number";
  return unconfirmed_.BrokenInvariant();
}

}  // namespace ddprun::launcher
