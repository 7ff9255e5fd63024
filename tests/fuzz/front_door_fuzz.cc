#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/rng.h"
#include "rendezvous/server/core/doorkeeper.h"
#include "rendezvous/wire/peer.h"
#include "rendezvous/wire/tls.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_bytes.h"

namespace ddprun::rendezvous {

struct FrontDoorFuzzResult {
  std::string problem;  // "" = none
  uint64_t admitted = 0;
  uint64_t turned_away = 0;
  uint64_t evicted = 0;
  uint64_t peers = 0;  // names that were read
};

// Plays the bytes as connections that come, end, authenticate and find no descriptor, into the
// connection limiter of the service's port. An unauthenticated peer that was admitted stays until
// it is evictable; a new one is admitted if there is a place, or an evictable peer; the bounds
// hold. Some bytes are read as gRPC's name of a peer, and as the first ones of a connection to a
// port with TLS.
FrontDoorFuzzResult FuzzFrontDoor(const uint8_t* data, size_t size);

namespace {

constexpr char kHandshake = 0x16;  // the first byte of TLS
constexpr char kLastCommand = 18;  // TCPStore's BARRIER, as of torch 2.11

class Player {
 public:
  Player(const uint8_t* data, size_t size)
      : bytes_(data, size),
        bounds_{.strangers = 1 + bytes_.Below(8),
                .per_address = 1 + bytes_.Below(5),
                .few = bytes_.Below(3)},
        keeper_(bounds_) {}

  FrontDoorFuzzResult Play() {
    while (!bytes_.empty() && result_.problem.empty()) {
      PlayOne();
      if (const std::string broken = keeper_.BrokenInvariant(); !broken.empty()) Fail(broken);
      if (keeper_.strangers() != strangers_.size()) Fail("strangers are counted wrongly");
    }
    return result_;
  }

 private:
  struct Stranger {
    std::string address;
    Instant since;
  };

  void PlayOne() {
    switch (bytes_.Below(8)) {
      case 0:
      case 1:
      case 2:
        return Accept();
      case 3:
        return Forget();
      case 4:
        return RunOut();
      case 5:
        return ReadPeer();
      case 6:
        return HearFirst();
      default:
        now_ = now_ + absl::Milliseconds(bytes_.Next() * 8);
    }
  }

  uint64_t CountOf(const std::string& address) const {
    return static_cast<uint64_t>(
        std::count_if(strangers_.begin(), strangers_.end(),
                      [&](const auto& entry) { return entry.second.address == address; }));
  }
  // For one of its own address, or of any.
  bool IsRipe(const Stranger& stranger, bool for_own) const {
    const bool crowd = for_own || CountOf(stranger.address) > bounds_.few;
    return stranger.since + (crowd ? Doorkeeper::kRipeAfter : Doorkeeper::kFewRipeAfter) <= now_;
  }
  bool AnyRipe(const std::string* own) const {
    return std::any_of(strangers_.begin(), strangers_.end(), [&](const auto& entry) {
      return (own == nullptr || entry.second.address == *own) &&
             IsRipe(entry.second, own != nullptr);
    });
  }

  void Accept() {
    const ConnectionId id(last_id_ += 1 + bytes_.Below(3));
    const std::string address = absl::StrCat(bytes_.Below(4));
    const bool address_full = CountOf(address) >= bounds_.per_address;
    const bool full = strangers_.size() >= bounds_.strangers;
    const bool has_place = address_full ? AnyRipe(&address) : !full || AnyRipe(nullptr);
    const Doorkeeper::Answer answer = keeper_.Accepted(id, address, now_);
    if (answer.admitted != has_place) Fail("a connection isn't treated as its place says");
    if (answer.evicted.has_value()) Evict(*answer.evicted, address_full);
    if (answer.admitted) strangers_[id] = {.address = address, .since = now_};
    ++(answer.admitted ? result_.admitted : result_.turned_away);
  }

  void Evict(ConnectionId id, bool for_own) {
    const auto found = strangers_.find(id);
    if (found == strangers_.end()) return Fail("an evicted connection isn't there");
    if (!IsRipe(found->second, for_own)) Fail("a stranger is evicted before it is ripe");
    strangers_.erase(found);
    ++result_.evicted;
  }

  void Forget() {
    const ConnectionId id(last_id_ - std::min<uint64_t>(last_id_, bytes_.Below(12)));
    keeper_.Forget(id);
    strangers_.erase(id);
  }

  void RunOut() {
    const bool any_ripe = AnyRipe(nullptr);
    const std::optional<ConnectionId> evicted = keeper_.OutOfDescriptors(now_);
    if (evicted.has_value() != any_ripe) Fail("without descriptors, one that is ripe makes room");
    if (evicted.has_value()) Evict(*evicted, false);
    if (keeper_.NextAccept() <= now_) Fail("it accepts at once without descriptors");
  }

  void ReadPeer() {
    const uint8_t family = bytes_.Next();
    const std::string prefix = family < 100 ? "ipv4:" : family < 200 ? "ipv6:" : "";
    const std::string name = prefix + bytes_.Text(bytes_.Below(64));
    const bool is_local = IsLocalPeer(name);
    const std::optional<PeerAddress> peer = ParsePeer(name);
    if (!peer.has_value()) {
      if (is_local && name != "inproc" && !absl::StartsWith(name, "unix:")) {
        Fail("a peer without a known address counts as local");
      }
      return;
    }
    ++result_.peers;
    if (peer->host.size() != 4 && peer->host.size() != 16)
      return Fail("no address has such a size");
    if (ParsePeer(PeerText(*peer)) != peer) Fail(absl::StrCat(name, " is read back otherwise"));
    if (IsLocalPeer(PeerText(*peer)) != is_local) Fail(absl::StrCat(name, " is local or isn't"));
    if (AddressGroup(*peer).empty()) Fail("an address group has no name");
  }

  void HearFirst() {
    const std::string first = bytes_.Text(1 + bytes_.Below(8));
    if (first.empty()) return;
    const std::string answer = AnswerWithoutTls(first);
    if (answer.empty() != (first.front() == kHandshake)) Fail("all but a handshake is answered");
    if (!answer.empty() && !absl::StartsWith(answer, "HTTP/1.1 426 ")) Fail("an answer is HTTP");
    const bool is_grpc = first.front() == kHandshake ||
                         absl::ascii_isprint(static_cast<unsigned char>(first.front()));
    if (BeginsTcpStore(first.front()) && is_grpc) Fail("gRPC's is taken for the store's");
    if (!BeginsTcpStore(first.front()) && first.front() >= 0 && first.front() <= kLastCommand) {
      Fail("the store's is taken for gRPC's");
    }
  }

  void Fail(const std::string& what) {
    if (result_.problem.empty()) result_.problem = what;
  }

  InputBytes bytes_;
  FrontDoorFuzzResult result_;
  const DoorBounds bounds_;
  Doorkeeper keeper_;
  Instant now_ = Instant() + absl::Hours(1);
  uint64_t last_id_ = 0;
  std::map<ConnectionId, Stranger> strangers_;
};

}  // namespace

FrontDoorFuzzResult FuzzFrontDoor(const uint8_t* data, size_t size) {
  return Player(data, size).Play();
}

}  // namespace ddprun::rendezvous

namespace ddprun::rendezvous {
namespace {

FrontDoorFuzzResult Play(const std::string& bytes) {
  return FuzzFrontDoor(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

TEST(FrontDoorSmoke, ConnectionsComeAndGo) {
  FrontDoorFuzzResult sum;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed);
    std::string bytes(20 + rng.Below(600), '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng.Below(256));
    const FrontDoorFuzzResult result = Play(bytes);
    ASSERT_EQ(result.problem, "") << "seed " << seed;
    sum.admitted += result.admitted;
    sum.turned_away += result.turned_away;
    sum.evicted += result.evicted;
  }
  // The events got somewhere.
  EXPECT_GT(sum.admitted, 3000u);
  EXPECT_GT(sum.turned_away, 300u);
  EXPECT_GT(sum.evicted, 300u);
}

TEST(FrontDoorSmoke, NamesOfPeers) {
  const auto read = [](char family, const std::string& name) {
    const std::string head = {1, 1, 1, 5, family, static_cast<char>(name.size())};
    const FrontDoorFuzzResult result = Play(head + name);
    EXPECT_EQ(result.problem, "") << name;
    return result.peers;
  };
  EXPECT_EQ(read('\0', "10.0.0.1:4711"), 1u);
  EXPECT_EQ(read('\0', "127.0.0.1:65535"), 1u);
  EXPECT_EQ(read('\x78', "%5Bfe80::1%25eth0%5D:80"), 1u);
  EXPECT_EQ(read('\x78', "[::ffff:127.0.0.1]:80"), 1u);
  EXPECT_EQ(read('\x78', "%5B::1%5D:99999"), 0u);
  EXPECT_EQ(read('\xF0', "unix:/tmp/socket"), 0u);
  EXPECT_EQ(read('\xF0', "ipv4:1.2.3:4"), 0u);
}

TEST(FrontDoorSmoke, TheEmptyInput) { EXPECT_EQ(Play("").problem, ""); }

}  // namespace
}  // namespace ddprun::rendezvous

DDPRUN_FUZZER(bytes) {
  const ddprun::rendezvous::FrontDoorFuzzResult result = ddprun::rendezvous::FuzzFrontDoor(
      reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  DDPRUN_CHECK(result.problem.empty(), result.problem);
}
