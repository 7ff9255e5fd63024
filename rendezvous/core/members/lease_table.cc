#include "rendezvous/core/members/lease_table.h"

#include <algorithm>

#include "base/check.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

uint64_t ProbeLog::Send(Instant now) {
  sent_.push_back({.at = now, .forgiven = forgiven_});
  if (sent_.size() > kProbesOutstandingMax) {
    sent_.pop_front();
    ++first_nonce_;
  }
  return first_nonce_ + sent_.size() - 1;
}

std::optional<Instant> ProbeLog::SentAt(uint64_t nonce) const {
  if (nonce < first_nonce_ || nonce - first_nonce_ >= sent_.size()) return std::nullopt;
  return sent_[nonce - first_nonce_].at;
}

absl::Duration ProbeLog::ForgivenSince(uint64_t nonce, Instant now) const {
  DDPRUN_CHECK(SentAt(nonce).has_value(), "a probe that nobody sent");
  const Sent& sent = sent_[nonce - first_nonce_];
  return std::min(forgiven_ - sent.forgiven, now - sent.at);
}

void DeadlineQueue::Set(uint64_t node, Instant at) {
  const auto known = at_.find(node);
  if (known != at_.end()) {
    if (known->second == at) return;
    queue_.erase({known->second, node});
  }
  if (at.is_infinite()) {
    if (known != at_.end()) at_.erase(known);
    return;
  }
  queue_.emplace(at, node);
  known != at_.end() ? void(known->second = at) : void(at_.emplace(node, at));
}

Instant DeadlineQueue::Earliest() const {
  return queue_.empty() ? Instant::Infinite() : queue_.begin()->first;
}

std::optional<uint64_t> DeadlineQueue::PopDue(Instant now) {
  if (queue_.empty() || queue_.begin()->first > now) return std::nullopt;
  const uint64_t node = queue_.begin()->second;
  Set(node, Instant::Infinite());
  return node;
}

Instant DeadlineQueue::At(uint64_t node) const {
  const auto known = at_.find(node);
  return known == at_.end() ? Instant::Infinite() : known->second;
}

void ProbeClock::Wake(Instant now, absl::Duration lease, size_t least) {
  if (!ticks()) due_ = now + pace(lease, least).interval;
}

void ProbeClock::Rest() {
  due_ = Instant::Infinite();
  pace_.reset();
}

uint64_t ProbeClock::Tick(Instant now, absl::Duration lease, size_t nodes, size_t least) {
  DDPRUN_CHECK(now >= due_, "a probe before its time");
  const absl::Duration longest = pace(lease, least).lease / 4;
  ProbePace next = ProbePace(lease, std::max(nodes, least));
  if (next.interval > longest) {
    next.interval = longest;
    next.lease = std::max(lease, kProbesInLease * longest);
  }
  pace_ = next;
  due_ = now + next.interval;
  return log_.Send(now);
}

}  // namespace ddprun::rendezvous
