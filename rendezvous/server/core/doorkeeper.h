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

// Whether a connection whose first byte is this is one of a client of torch's TCPStore. The first
// byte of such a client is the number of a command: 0 to 18 as of torch 2.11. Of the clients of
// gRPC, those with TLS begin with 22, the type of a handshake record (RFC 8446, 5.1), and those
// without with the 'P' of HTTP/2's preface (RFC 9113, 3.4).
constexpr bool BeginsTcpStore(char first) { return static_cast<unsigned char>(first) < 22; }

// An accepted connection; later ones have greater ids.
using ConnectionId = Strong<struct ConnectionIdTag, uint64_t>;

// Upper bound of strangers, however many descriptors there are: agents of a large job that join at
// the same moment. An idle connection takes memory.
inline constexpr uint64_t kStrangersMax = 4096;

// How many connections of unauthenticated peers ("strangers") a service keeps.
struct DoorBounds {
  size_t strangers = 1;    // in all; at least 1
  size_t per_address = 1;  // from one address; at least 1
  size_t few = 0;          // an address with more than these is a crowd
};

// Bounds for a process that may have `descriptors` of them; 0 = unknown. A stranger takes two, and
// all strangers together at most half of those that aren't reserved for the process itself. The
// other half is for members, which take one each.
DoorBounds DoorBoundsFor(uint64_t descriptors);

// Decides which connections of unauthenticated peers are kept. A peer is unauthenticated (a
// stranger) until it joins, shows the token or brings a member's heartbeats. Strangers are bounded,
// in all and by address. Connections of known peers are neither counted nor ended.
// Owned by FrontDoor, WebGuests and TcpStoreServer. Pure; each step is O(log n).
class Doorkeeper {
 public:
  // A stranger of a crowd that is this old may be evicted: a Join arrives within some round trips.
  static constexpr absl::Duration kRipeAfter = absl::Seconds(1);
  // A stranger whose address isn't a crowd may be evicted at this age. A cluster's agents all
  // connect at the same moment, each from its own address, and then the service is the slow side:
  // it welcomes about a thousand in a second.
  static constexpr absl::Duration kFewRipeAfter = absl::Seconds(10);
  // Pause after an accept(2) without a free descriptor, unless a connection ends before.
  static constexpr absl::Duration kExhaustedPause = absl::Milliseconds(100);
  // How long an address is refused after Ban().
  static constexpr absl::Duration kBannedFor = absl::Seconds(10);
  static constexpr size_t kBannedMax = 4096;  // addresses; the next one replaces the oldest

  explicit Doorkeeper(const DoorBounds& bounds) : bounds_(bounds) {}

  // The earliest time for the next accept(2). In the future while all places are taken by strangers
  // that are too young to be evicted, and after OutOfDescriptors().
  Instant NextAccept() const;

  struct Answer {
    bool admitted = false;                // false: close the new connection at once
    std::optional<ConnectionId> evicted;  // end this connection; it is no longer counted
  };
  // Finds a place for a connection that was accepted, by the first of these that applies:
  //   the address is banned: not admitted
  //   the address is at its bound: the place of its own oldest stranger, if kRipeAfter old; or none
  //   a free place
  //   the place of the oldest stranger of a crowd, if kRipeAfter old; the largest such crowd's
  //   the place of the oldest stranger of all, if kFewRipeAfter old
  // Params: id: greater than all earlier ones. address: peers with equal ones share a bound.
  Answer Accepted(ConnectionId id, const std::string& address, Instant now);

  // An accept(2) has failed for lack of descriptors. Returns the connection to end, if a stranger
  // is old enough.
  std::optional<ConnectionId> OutOfDescriptors(Instant now);

  // Refuses new connections of the address for kBannedFor, because one of them was abused: an
  // abused connection costs more than the bounds allow for. Open connections stay. Ignored while
  // the address is banned already.
  void Ban(const std::string& address, Instant now);

  // The peer is known now, or its connection has ended. Unknown ids are ignored, because the
  // connection may just have been evicted.
  void Forget(ConnectionId id);

  size_t strangers() const { return strangers_.size(); }

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  struct Stranger {
    std::string address;
    Instant since;  // when it was accepted; never earlier than for a lower id
  };
  struct Address {
    std::set<ConnectionId> strangers;  // not empty
    size_t ripe = 0;                   // how many are kRipeAfter old; these are the lowest ids
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
  // Remove the address from ripe_ and in_crowds_, and add it again. Every change of an address
  // happens between the two, because the keys of both sets depend on its strangers.
  void Unlist(const Address& address);
  void List(const Address& address);

  const DoorBounds bounds_;
  std::map<ConnectionId, Stranger> strangers_;           // at most bounds_.strangers
  absl::flat_hash_map<std::string, Address> addresses_;  // of strangers_, and each of these there
  std::set<std::pair<size_t, ConnectionId>, LargestFirst>
      ripe_;                          // crowds with a ripe stranger: its size, its oldest stranger
  std::set<ConnectionId> in_crowds_;  // the oldest stranger of each crowd
  ConnectionId last_;                 // the greatest id so far
  ConnectionId last_ripe_;            // strangers up to this id are kRipeAfter old
  std::deque<std::pair<Instant, std::string>> bans_;  // end of each ban, in this order
  absl::flat_hash_set<std::string> banned_;           // the addresses of bans_, each once
  Instant latest_;                                    // the latest `now` of all calls
  Instant exhausted_until_;                           // no accept(2) before
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CORE_DOORKEEPER_H_
