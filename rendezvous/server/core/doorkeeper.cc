#include "rendezvous/server/core/doorkeeper.h"

#include <algorithm>

#include "base/check.h"

// Which unauthenticated connections are kept (R9).
//
// Goal: nobody can keep an agent out by opening connections, and no flood ends the connection of an
// agent that is about to join. The simple rules fail:
//   refuse when full        some thousand idle connections keep every agent out
//   evict the oldest        a flood evicts agents before the service has read their Join
//   evict after 1 s         16,384 agents that connect at the same moment fill 4,096 places in 0.1
//                           s, and the first is welcomed after 2.5 s: agents evict each other
//   bound each address      attackers have many addresses, and agents behind a gateway share one
//
// So a stranger is evicted only when it is old enough, and how old that is depends on its address:
// 1 s in a crowd (an address with more than `few` strangers), 10 s elsewhere. A flood so gets at
// most 4,096 connections a second from crowds, and 410 from addresses that stay below them.
//
// Example: 4 places, at most 3 of them for one address, few = 1.
//
//   t     call                      places        result
//   0 s   Accepted a1, b2, b3, c4   a1 b2 b3 c4   all admitted; b is a crowd
//   0 s   NextAccept()                            1 s: b2 is the first that can be evicted
//   1 s   Accepted d5               a1 b3 c4 d5   b2 evicted, although a1 has the lower id
//   1 s   NextAccept()                            10 s: no address is a crowd any more
//   10 s  Accepted e6               b3 c4 d5 e6   a1 evicted
//
// Ids grow with time, so the order of ids is the order of ages, and strangers_ needs no second
// index by age. last_ripe_ divides it: ids up to there are 1 s old. Ripen() moves the mark over
// each stranger once. ripe_ and in_crowds_ answer "the largest crowd with such a stranger" and "the
// oldest stranger of any crowd" in O(log n).

namespace ddprun::rendezvous {
namespace {

constexpr uint64_t kReserved = 64;          // listeners, logs, loops, pipes, the status page
constexpr uint64_t kDescriptorsMin = 1024;  // if the limit is unknown: the usual soft limit
constexpr uint64_t kFew = 8;  // an agent, its heartbeats, and calls for the job's status

}  // namespace

// Example: 1,024 descriptors leave 960, so 240 strangers take 480; 120 from one address, few = 8.
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

// The listener stays readable when accept(2) finds no descriptor, so without kExhaustedPause the
// loop would spin. Evicting isn't enough: gRPC's descriptor is free only when gRPC has closed it.
std::optional<ConnectionId> Doorkeeper::OutOfDescriptors(Instant now) {
  Ripen(now);
  exhausted_until_ = latest_ + kExhaustedPause;
  const std::optional<ConnectionId> first = FirstToGo();
  if (first.has_value()) Evict(*first);
  return first;
}

// The stranger that makes room for a connection of another address.
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
