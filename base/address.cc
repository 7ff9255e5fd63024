#include "base/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/fd.h"

namespace ddprun {
namespace {

// The address with port 0; its family is AF_UNSPEC if the text is no address.
sockaddr_storage Parse(const std::string& text) {
  sockaddr_storage address{};
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    std::memcpy(&address, &v4, sizeof(v4));
  } else if (inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    std::memcpy(&address, &v6, sizeof(v6));
  }
  return address;
}

bool IsLinkLocal(const sockaddr_storage& address) {
  sockaddr_in6 v6{};
  std::memcpy(&v6, &address, sizeof(v6));
  return address.ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
}

// False only if no interface has the address. Three system calls, whatever the number of
// interfaces: strangers can have a service ask this as often as they call it. True proves nothing:
// net.ipv4.ip_nonlocal_bind allows any address.
bool MayBind(const sockaddr_storage& address) {
  const Fd fd(socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const socklen_t size = address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (!fd.valid()) return true;
  return bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0;
}

}  // namespace

std::string AddressText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(address);
    inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text));
  }
  return std::string(absl::StripPrefix(text, "::ffff:"));
}

absl::StatusOr<std::vector<std::string>> OwnAddresses() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return ErrnoStatus(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(raw, freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    std::string text = entry->ifa_addr == nullptr ? "" : AddressText(entry->ifa_addr);
    const bool known = std::find(addresses.begin(), addresses.end(), text) != addresses.end();
    if (!text.empty() && !known) addresses.push_back(std::move(text));
  }
  return addresses;
}

bool IsOwnAddress(const std::string& address) {
  const sockaddr_storage parsed = Parse(std::string(absl::StripPrefix(address, "::ffff:")));
  if (parsed.ss_family == AF_UNSPEC) return false;
  const std::string text = AddressText(reinterpret_cast<const sockaddr*>(&parsed));
  if (absl::StartsWith(text, "127.") || text == "::1" || text == "0.0.0.0" || text == "::") {
    return true;
  }
  if (!IsLinkLocal(parsed) && !MayBind(parsed)) return false;
  const absl::StatusOr<std::vector<std::string>> own = OwnAddresses();
  return own.ok() && std::find(own->begin(), own->end(), text) != own->end();
}

absl::StatusOr<sockaddr_un> UnixAddress(absl::string_view path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t most = sizeof(address.sun_path) - 1;  // a zero ends it
  if (path.empty() || path.size() > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("the path has ", path.size(), " bytes, 1 to ", most, " are allowed"));
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

}  // namespace ddprun
