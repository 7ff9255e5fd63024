#include "rendezvous/server/core/doorkeeper.h"

#include <algorithm>

#include "base/check.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint64_t kReserved = 64;          // listeners, logs, loops, pipes, the status page
constexpr uint64_t kDescriptorsMin = 1024;  // where nobody says: POSIX's usual soft limit
constexpr uint64_t kFew = 8;                // an agent, its heartbeats, who asks for its status

}  // namespace

DoorBounds DoorBoundsFor(uint64_t descriptors) {
  if (descriptors == 0) descriptors = kDescriptorsMin;
  const uint64_t free = descriptors > kReserved ? descriptors - kReserved : 0;
  const uint64_t strangers = std::clamp<uint64_t>(free / 4, 2, kStrangersMax);
  return {
      .strangers = strangers, .per_address = strangers / 2, .few = std::min(kFew, strangers / 8)};
}

Instant Doorkeeper::NextAccept() const {
  Instant next = exhausted_until_;
  if (!Full()) return next;
  Instant ripe = strangers_.begin()->second.since + kFewRipeAfter;
  if (!in_crowds_.empty()) {
    ripe = std::min(ripe, strangers_.at(*in_crowds_.begin()).since + kRipeAfter);
  }
  return std::max(next, ripe);
}

Doorkeeper::Answer Doorkeeper::Accepted(ConnectionId id, const std::string& address, Instant now) {
  DDPRUN_CHECK(id > last_, "connections are counted upwards");
  Ripen(now);
  last_ = id;
  Answer answer;
  EndBans();
  if (banned_.contains(address)) return answer;
  if (const auto found = addresses_.find(address);
      found != addresses_.end() && found->second.strangers.size() >= bounds_.per_address) {
    if (found->second.ripe == 0) return answer;
    answer.evicted = Evict(*found->second.strangers.begin());
  } else if (Full()) {
    const std::optional<ConnectionId> first = FirstToGo();
    if (!first.has_value()) return answer;
    answer.evicted = Evict(*first);
  }
  Add(id, address, latest_);
  answer.admitted = true;
  return answer;
}

std::optional<ConnectionId> Doorkeeper::OutOfDescriptors(Instant now) {
  Ripen(now);
  exhausted_until_ = latest_ + kExhaustedPause;
  const std::optional<ConnectionId> first = FirstToGo();
  if (first.has_value()) Evict(*first);
  return first;
}

// Who makes room for one of another address.
std::optional<ConnectionId> Doorkeeper::FirstToGo() const {
  if (!ripe_.empty()) return ripe_.begin()->second;
  if (strangers_.empty()) return std::nullopt;
  const auto& [id, oldest] = *strangers_.begin();
  return oldest.since + kFewRipeAfter <= latest_ ? std::optional(id) : std::nullopt;
}

void Doorkeeper::Ban(const std::string& address, Instant now) {
  Ripen(now);
  EndBans();
  if (!banned_.insert(address).second) return;
  bans_.emplace_back(latest_ + kBannedFor, address);
  if (bans_.size() <= kBannedMax) return;
  banned_.erase(bans_.front().second);
  bans_.pop_front();
}

void Doorkeeper::EndBans() {
  while (!bans_.empty() && bans_.front().first <= latest_) {
    banned_.erase(bans_.front().second);
    bans_.pop_front();
  }
}

void Doorkeeper::Forget(ConnectionId id) {
  if (!strangers_.contains(id)) return;
  Remove(id);
  exhausted_until_ = Instant();  // a descriptor is free again
}

void Doorkeeper::Ripen(Instant now) {
  latest_ = std::max(latest_, now);
  for (auto next = strangers_.upper_bound(last_ripe_);
       next != strangers_.end() && next->second.since + kRipeAfter <= latest_; ++next) {
    Address& address = addresses_.at(next->second.address);
    Unlist(address);
    ++address.ripe;
    List(address);
    last_ripe_ = next->first;
  }
}

void Doorkeeper::Add(ConnectionId id, const std::string& address, Instant now) {
  strangers_.emplace(id, Stranger{.address = address, .since = now});
  Address& of = addresses_[address];
  Unlist(of);
  of.strangers.insert(id);
  List(of);
}

ConnectionId Doorkeeper::Evict(ConnectionId id) {
  Remove(id);
  return id;
}

void Doorkeeper::Remove(ConnectionId id) {
  const auto stranger = strangers_.find(id);
  const auto of = addresses_.find(stranger->second.address);
  Unlist(of->second);
  of->second.strangers.erase(id);
  if (id <= last_ripe_) --of->second.ripe;
  List(of->second);
  if (of->second.strangers.empty()) addresses_.erase(of);
  strangers_.erase(stranger);
}

void Doorkeeper::Unlist(const Address& address) {
  if (!IsCrowd(address)) return;
  in_crowds_.erase(*address.strangers.begin());
  if (address.ripe > 0) ripe_.erase({address.strangers.size(), *address.strangers.begin()});
}

void Doorkeeper::List(const Address& address) {
  if (!IsCrowd(address)) return;
  in_crowds_.insert(*address.strangers.begin());
  if (address.ripe > 0) ripe_.insert({address.strangers.size(), *address.strangers.begin()});
}

std::string Doorkeeper::BrokenInvariant() const {
  if (strangers_.size() > bounds_.strangers) return "more strangers than places";
  if (bans_.size() != banned_.size() || bans_.size() > kBannedMax) return "bans miscounted";
  Instant before;
  for (const auto& [id, stranger] : strangers_) {
    if (id > last_ || stranger.since < before || stranger.since > latest_)
      return "ages out of order";
    before = stranger.since;
    const auto of = addresses_.find(stranger.address);
    if (of == addresses_.end() || !of->second.strangers.contains(id))
      return "a stranger of nowhere";
  }
  size_t counted = 0;
  size_t with_ripe = 0;
  size_t crowds = 0;
  for (const auto& [name, address] : addresses_) {
    if (address.strangers.empty()) return "an address without strangers";
    if (address.strangers.size() > bounds_.per_address) return "too many of one address";
    const auto ripe = static_cast<size_t>(
        std::distance(address.strangers.begin(), address.strangers.upper_bound(last_ripe_)));
    if (ripe != address.ripe) return "ripe ones miscounted";
    const bool listed = ripe_.contains({address.strangers.size(), *address.strangers.begin()});
    if (listed != (ripe > 0 && IsCrowd(address))) return "an address listed wrongly";
    if (in_crowds_.contains(*address.strangers.begin()) != IsCrowd(address)) {
      return "a crowd listed wrongly";
    }
    with_ripe += listed ? 1 : 0;
    crowds += IsCrowd(address) ? 1 : 0;
    counted += address.strangers.size();
  }
  if (counted != strangers_.size()) return "strangers miscounted";
  const bool gone = with_ripe != ripe_.size() || crowds != in_crowds_.size();
  return gone ? "a list of addresses that are gone" : "";
}

}  // namespace ddprun::rendezvous
