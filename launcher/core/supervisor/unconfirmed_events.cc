#include "launcher/core/supervisor/unconfirmed_events.h"

#include <utility>

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

}  // namespace ddprun::launcher
