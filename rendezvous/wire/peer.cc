#include "rendezvous/wire/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/address.h"

namespace ddprun::rendezvous {
namespace {

constexpr size_t kNetworkBytes = 8;  // of an IPv6 address

std::string Bytes(const in_addr& address) {
  return {reinterpret_cast<const char*>(&address), sizeof(address)};
}

std::string Bytes(const in6_addr& address) {
  const std::string all(reinterpret_cast<const char*>(&address), sizeof(address));
  // IPv4 as a socket for both families shows it: ::ffff:127.0.0.1
  return IN6_IS_ADDR_V4MAPPED(&address) ? all.substr(12) : all;
}

// "" = not an address of that family.
std::string HostBytes(bool six, const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (six) return inet_pton(AF_INET6, host.c_str(), &v6) == 1 ? Bytes(v6) : "";
  return inet_pton(AF_INET, host.c_str(), &v4) == 1 ? Bytes(v4) : "";
}

bool IsSix(const PeerAddress& peer) { return peer.host.size() == sizeof(in6_addr); }

std::string HostText(const PeerAddress& peer) {
  char host[INET6_ADDRSTRLEN] = "?";
  inet_ntop(IsSix(peer) ? AF_INET6 : AF_INET, peer.host.data(), host, sizeof(host));
  return host;
}

// Link-local addresses repeat on each link: such an address of another machine may be this one's on
// another link.
bool IsLinkLocal(const PeerAddress& peer) {
  in6_addr address{};
  if (!IsSix(peer)) return false;
  std::memcpy(&address, peer.host.data(), sizeof(address));
  return IN6_IS_ADDR_LINKLOCAL(&address);
}

}  // namespace

std::optional<PeerAddress> ParsePeer(absl::string_view peer) {
  const bool six = absl::ConsumePrefix(&peer, "ipv6:");
  if (!six && !absl::ConsumePrefix(&peer, "ipv4:")) return std::nullopt;
  const size_t colon = peer.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(peer.substr(colon + 1), &port) ||
      port > UINT16_MAX) {
    return std::nullopt;
  }
  std::string host(peer.substr(0, colon));
  if (six) {
    host = absl::StrReplaceAll(host, {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}});
    host = host.substr(0, host.find('%'));  // the interface of a link-local address
  }
  std::string bytes = HostBytes(six, host);
  if (bytes.empty()) return std::nullopt;
  return PeerAddress{.host = std::move(bytes), .port = static_cast<uint16_t>(port)};
}

PeerAddress PeerOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address, sizeof(v6));
    return {.host = Bytes(v6.sin6_addr), .port = ntohs(v6.sin6_port)};
  }
  sockaddr_in v4{};
  std::memcpy(&v4, &address, sizeof(v4));
  return {.host = Bytes(v4.sin_addr), .port = ntohs(v4.sin_port)};
}

std::string PeerText(const PeerAddress& peer) {
  const std::string host = HostText(peer);
  return IsSix(peer) ? absl::StrCat("ipv6:%5B", host, "%5D:", peer.port)
                     : absl::StrCat("ipv4:", host, ":", peer.port);
}

std::string AddressGroup(const PeerAddress& peer) {
  return peer.host.size() > kNetworkBytes ? peer.host.substr(0, kNetworkBytes) : peer.host;
}

bool IsOwnerPeer(absl::string_view peer) {
  return peer == "inproc" || absl::StartsWith(peer, "unix:");
}

bool IsLocalPeer(absl::string_view peer) {
  if (IsOwnerPeer(peer)) return true;
  const std::optional<PeerAddress> address = ParsePeer(peer);
  return address.has_value() && !IsLinkLocal(*address) && IsOwnAddress(HostText(*address));
}

std::string PeerHost(absl::string_view peer) {
  const std::optional<PeerAddress> address = ParsePeer(peer);
  return address.has_value() ? HostText(*address) : std::string(peer);
}

}  // namespace ddprun::rendezvous
