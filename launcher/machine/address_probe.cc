// Names and addresses.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "launcher/machine/address_list.h"
#include "launcher/machine/host_probe.h"

namespace ddprun::launcher {
namespace {

void AddOnce(std::vector<std::string>* list, std::string text) {
  if (text.empty() || std::find(list->begin(), list->end(), text) != list->end()) return;
  list->push_back(std::move(text));
}

// The whole of 127/8 is this machine (RFC 1122 3.2.1.3), and so are the unspecified addresses: a
// connection to 0.0.0.0 or :: reaches a server of this machine.
bool IsSelf(absl::string_view address) {
  if (absl::StartsWith(address, "::ffff:")) address.remove_prefix(7);
  return absl::StartsWith(address, "127.") || address == "::1" || address == "0.0.0.0" ||
         address == "::";
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
  // An IPv4 peer of a socket that takes both.
  return std::string(absl::StripPrefix(text, "::ffff:"));
}

absl::StatusOr<AddressList> LookUp(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error == EAI_SYSTEM) {
    return absl::NotFoundError(
        ErrnoStatus(errno, absl::StrCat("can't resolve host '", host, "'")).message());
  }
  if (error != 0) {
    return absl::NotFoundError(absl::StrCat("can't resolve host '", host,
                                            "': ", gai_strerror(error),
                                            "; check its spelling, DNS and /etc/hosts"));
  }
  return AddressList(found);
}

std::string Hostname() {
  char name[HOST_NAME_MAX + 1] = "";
  if (gethostname(name, sizeof(name)) != 0) return "localhost";
  name[HOST_NAME_MAX] = '\0';
  return *name == '\0' ? "localhost" : name;
}

absl::StatusOr<std::vector<std::string>> LocalAddresses() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return ErrnoStatus(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(raw, freeifaddrs);
  std::vector<std::string> addresses;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr != nullptr) AddOnce(&addresses, AddressText(entry->ifa_addr));
  }
  return addresses;
}

absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& host) {
  DDPRUN_ASSIGN_OR_RETURN(const AddressList list, LookUp(host, 0));
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    AddOnce(&addresses, AddressText(entry->ai_addr));
  }
  return addresses;
}

absl::StatusOr<bool> IsLocalHost(const std::string& host) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> wanted, ResolveHost(host));
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> ours, LocalAddresses());
  return std::any_of(wanted.begin(), wanted.end(), [&](const std::string& address) {
    return IsSelf(address) || std::find(ours.begin(), ours.end(), address) != ours.end();
  });
}

absl::StatusOr<std::string> LocalAddressToward(const std::string& host, uint16_t port) {
  DDPRUN_ASSIGN_OR_RETURN(const AddressList list, LookUp(host, port));
  int error = EADDRNOTAVAIL;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    const Fd fd(socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    auto* address = reinterpret_cast<sockaddr*>(&own);
    if (!fd.valid() || connect(fd.get(), entry->ai_addr, entry->ai_addrlen) != 0 ||
        getsockname(fd.get(), address, &length) != 0) {
      error = errno;
      continue;
    }
    return AddressText(address);
  }
  return ErrnoStatus(error, absl::StrCat("find the local address toward '", host, "'"));
}

}  // namespace ddprun::launcher
