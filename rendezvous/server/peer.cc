#include "rendezvous/server/peer.h"

#include <arpa/inet.h>

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace ddprun::rendezvous {
namespace {

bool IsLoopback4(const in_addr& address) { return (ntohl(address.s_addr) >> 24) == IN_LOOPBACKNET; }

bool IsLoopback6(const in6_addr& address) {
  if (IN6_IS_ADDR_LOOPBACK(&address)) return true;
  // 127.0.0.0/8 as a socket for both families shows it: ::ffff:127.0.0.1
  return IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == IN_LOOPBACKNET;
}

}  // namespace

bool IsLocalPeer(absl::string_view peer) {
  if (peer == "inproc" || absl::StartsWith(peer, "unix:")) return true;
  const size_t port = peer.rfind(':');
  if (port == absl::string_view::npos) return false;
  std::string host(peer.substr(0, port));
  if (absl::StartsWith(host, "ipv4:")) {
    in_addr address{};
    return inet_pton(AF_INET, host.c_str() + 5, &address) == 1 && IsLoopback4(address);
  }
  if (!absl::StartsWith(host, "ipv6:")) return false;
  host = absl::StrReplaceAll(host.substr(5), {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}});
  in6_addr address{};
  return inet_pton(AF_INET6, host.c_str(), &address) == 1 && IsLoopback6(address);
}

}  // namespace ddprun::rendezvous
