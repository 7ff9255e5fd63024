#ifndef DDPRUN_RENDEZVOUS_SERVER_CORE_DOORKEEPER_H_
#define DDPRUN_RENDEZVOUS_SERVER_CORE_DOORKEEPER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "base/strong.h"

namespace ddprun::rendezvous {

// Of one that was accepted; the later, the greater.
using ConnectionId = Strong<struct ConnectionIdTag, uint64_t>;

// Strangers' connections, however many descriptors there are: who join at one moment; an idle one
// takes memory.
inline constexpr uint64_t kStrangersMax = 4096;

// How many connections a service keeps of those whom it doesn't know (yet).
struct DoorBounds {
  size_t strangers = 1;    // at least 1
  size_t per_address = 1;  // of these; at least 1
  size_t few = 0;          // an address with more than these is a crowd
};

// What a process that may have so many descriptors can spare; 0 = it doesn't know. A stranger takes
// two, and all together take at most half of what isn't reserved for the process's own: the rest is
// for members, who take one.
DoorBounds DoorBoundsFor(uint64_t descriptors);

// Whose connections are kept while nobody knows whose they are: a stranger is who has neither
// joined, nor brought the token, nor a member's heartbeats. Strangers are bounded, in all and by
// address; who is known is no business of this part any more, and so is never counted or ended.
// Pure; each step is O(log n).
class Doorkeeper {
 public:
  // One of a crowd that has had so long to say who it is may have to make room: a Join is there
  // within a few round trips.
  static constexpr absl::Duration kRipeAfter = absl::Seconds(1);
  // The same of the few that an address has elsewhere. A cluster's agents all come at one moment,
  // each from its own address, and it is the service that is late then: a thousand take it a
  // second.
  static constexpr absl::Duration kFewRipeAfter = absl::Seconds(10);
  // Before another try when no descriptor was left, unless a connection ends.
  static constexpr absl::Duration kExhaustedPause = absl::Milliseconds(100);
  // Nobody is admitted from an address of which somebody abused a connection.
  static constexpr absl::Duration kBannedFor = absl::Seconds(10);
  static constexpr size_t kBannedMax = 4096;  // addresses; the next takes the oldest one's place

  explicit Doorkeeper(const DoorBounds& bounds) : bounds_(bounds) {}

  // From when on the next connection may be accepted. Later than now when all places are taken by
  // strangers who have their time still, and when no descriptor was left a moment ago.
  Instant NextAccept() const;

  struct Answer {
    bool admitted = false;                // else: close it at once
    std::optional<ConnectionId> evicted;  // end this one; it is no longer counted
  };
  // A connection was accepted. Its place is a free one; else that of the oldest ripe stranger of
  // the same address, where the address has its most; else that of the oldest of the crowd with
  // the most strangers, of those with a ripe one; else that of the oldest, if it is ripe as one of
  // few.
  // Params: id: greater than all before. address: who shares it shares its bound.
  Answer Accepted(ConnectionId id, const std::string& address, Instant now);

  // No descriptor was left to accept one. Returns whom to end for it, if anybody is ripe.
  std::optional<ConnectionId> OutOfDescriptors(Instant now);

  // Somebody of that address abused a connection: each costs more than what the bounds are for.
  // What is open stays. Ignored while it is banned.
  void Ban(const std::string& address, Instant now);

  // It is known now, or it has ended. Others are ignored: it may just have been evicted.
  void Forget(ConnectionId id);

  size_t strangers() const { return strangers_.size(); }

  // What is wrong with it; "" = nothing.
  std::string BrokenInvariant() const;

 private:
  struct Stranger {
    std::string address;
    Instant since;  // not before that of lower ids
  };
  struct Address {
    std::set<ConnectionId> strangers;  // not empty
    size_t ripe = 0;                   // of these, the oldest ones: old enough in a crowd
  };
  // The most strangers first, then the oldest one.
  struct LargestFirst {
    bool operator()(const std::pair<size_t, ConnectionId>& a,
                    const std::pair<size_t, ConnectionId>& b) const {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    }
  };

  bool Full() const { return strangers_.size() >= bounds_.strangers; }
  bool IsCrowd(const Address& address) const { return address.strangers.size() > bounds_.few; }
  void Ripen(Instant now);
  std::optional<ConnectionId> FirstToGo() const;
  void EndBans();
  void Add(ConnectionId id, const std::string& address, Instant now);
  ConnectionId Evict(ConnectionId id);
  void Remove(ConnectionId id);
  // An address is changed between these two.
  void Unlist(const Address& address);
  void List(const Address& address);

  const DoorBounds bounds_;
  std::map<ConnectionId, Stranger> strangers_;           // at most bounds_.strangers
  absl::flat_hash_map<std::string, Address> addresses_;  // of strangers_, and each of these there
  std::set<std::pair<size_t, ConnectionId>, LargestFirst>
      ripe_;                          // crowds with a ripe one: how many strangers, and the oldest
  std::set<ConnectionId> in_crowds_;  // the oldest of each crowd
  ConnectionId last_;                 // no stranger is greater
  ConnectionId last_ripe_;            // strangers up to this one are ripe, the others aren't
  std::deque<std::pair<Instant, std::string>> bans_;  // until when, the first to end first
  absl::flat_hash_set<std::string> banned_;           // of bans_, each once
  Instant latest_;                                    // the latest time that was told
  Instant exhausted_until_;                           // accepting pauses until then
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CORE_DOORKEEPER_H_
