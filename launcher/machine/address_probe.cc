// Names and addresses.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "launcher/machine/host_probe.h"

namespace ddprun::launcher {
namespace {

void AddOnce(std::vector<std::string>* list, std::string text) {
  if (text.empty() || std::find(list->begin(), list->end(), text) != list->end()) return;
  list->push_back(std::move(text));
}

}  // namespace

absl::StatusOr<AddressList> LookUp(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error == EAI_SYSTEM) {
    return absl::UnavailableError(
        ErrnoStatus(errno, absl::StrCat("can't resolve host '", host, "'")).message());
  }
  if (error != 0) {
    const std::string text = absl::StrCat("can't resolve host '", host, "': ", gai_strerror(error),
                                          "; check its spelling, DNS and /etc/hosts");
    const bool unknown = error == EAI_NONAME || error == EAI_NODATA;
    return unknown ? absl::NotFoundError(text) : absl::UnavailableError(text);
  }
  return AddressList(found);
}

std::string Hostname() {
  char name[HOST_NAME_MAX + 1] = "";
  if (gethostname(name, sizeof(name)) != 0) return "localhost";
  name[HOST_NAME_MAX] = '\0';
  return *name == '\0' ? "localhost" : name;
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
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, ResolveHost(host));
  return std::any_of(addresses.begin(), addresses.end(), IsOwnAddress);
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
