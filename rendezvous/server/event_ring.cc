#include "rendezvous/server/event_ring.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {
namespace {

size_t BytesOf(const Note& note) {
  size_t bytes = note.event.size();
  for (const auto& [name, value] : note.fields) bytes += name.size() + value.size();
  return bytes;
}

}  // namespace

void EventRing::Add(Instant now, absl::Time wall_time, const Note& note) {
  entries_.push_back({.number = ++last_, .wall_time = wall_time, .time = now, .note = note});
  bytes_ += BytesOf(note);
  while (entries_.size() > 1 && (entries_.size() > kEventsMax || bytes_ > kEventBytesMax)) {
    bytes_ -= BytesOf(entries_.front().note);
    entries_.pop_front();
  }
  NotifyListeners();
}

void EventRing::Close() {
  if (std::exchange(closed_, true)) return;
  NotifyListeners();
}

const EventRing::Entry* EventRing::After(uint64_t number) const {
  if (entries_.empty() || number >= last_) return nullptr;
  const uint64_t first = entries_.front().number;
  return &entries_[number < first ? 0 : static_cast<size_t>(number + 1 - first)];
}

uint64_t EventRing::Subscribe(std::function<void()> listener) {
  listeners_.emplace(++last_subscription_, std::move(listener));
  return last_subscription_;
}

void EventRing::NotifyListeners() {
  std::vector<uint64_t> subscriptions;
  for (const auto& [subscription, listener] : listeners_) subscriptions.push_back(subscription);
  for (const uint64_t subscription : subscriptions) {
    const auto found = listeners_.find(subscription);
    if (found == listeners_.end()) continue;
    const std::function<void()> listener = found->second;  // it may unsubscribe
    listener();
  }
}

}  // namespace ddprun::rendezvous
