#ifndef DDPRUN_RENDEZVOUS_WIRE_PEER_H_
#define DDPRUN_RENDEZVOUS_WIRE_PEER_H_

#include <sys/socket.h>

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// The remote end of a TCP connection. No two open connections to one address of ours have the same
// one.
struct PeerAddress {
  std::string host;  // 4 or 16 bytes, as in packets; IPv4 within IPv6 has 4
  uint16_t port = 0;

  friend auto operator<=>(const PeerAddress&, const PeerAddress&) = default;
};

// Parses gRPC's name of a peer: "ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:4711". nullopt: another kind
// of peer, or no name. Threads: any.
std::optional<PeerAddress> ParsePeer(absl::string_view peer);

// The peer of an accepted socket. Requires: an address of IPv4 or IPv6.
PeerAddress PeerOf(const sockaddr_storage& address);

// gRPC's name of the peer.
std::string PeerText(const PeerAddress& peer);

// The key by which peers share a bound: an IPv4 address, or the 64 bits of an IPv6 network, because
// its hosts have as many addresses as they like.
std::string AddressGroup(const PeerAddress& peer);

// True when gRPC's name of a peer is "unix:…" or "inproc": the caller could open a socket in a
// folder of the job's owner, or is this process. Pure; threads: any.
bool IsOwnerPeer(absl::string_view peer);

// True when gRPC's name of a peer is this machine: IsOwnerPeer(), or an address of this machine's
// own (base/address.h). The kernel accepts no packet from outside that bears such an address,
// so no other machine can have it in a connection. Threads: any.
bool IsLocalPeer(absl::string_view peer);

// The address in gRPC's name of a peer, for people: "10.0.0.7", "fd00::7"; other names are
// unchanged.
std::string PeerHost(absl::string_view peer);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_PEER_H_
