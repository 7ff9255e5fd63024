#include "launcher/core/outbox.h"

#include <utility>

namespace ddprun::launcher {

const rendezvous::AgentMessage& Outbox::Add(rendezvous::AgentMessage message) {
  message.sequence = ++last_sequence_;
  pending_.push_back(std::move(message));
  return pending_.back();
}

void Outbox::Confirm(uint64_t sequence) {
  while (!pending_.empty() && pending_.front().sequence <= sequence) pending_.pop_front();
}

}  // namespace ddprun::launcher
