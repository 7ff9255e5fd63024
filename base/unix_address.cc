#include "base/unix_address.h"

#include <sys/socket.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun {

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
