#ifndef DDPRUN_BASE_UNIX_ADDRESS_H_
#define DDPRUN_BASE_UNIX_ADDRESS_H_

#include <sys/un.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// The address of a unix socket that is a file (unix(7)).
// Errors: INVALID_ARGUMENT — sun_path doesn't take a path of that length: how long it is and may
// be. Pure; threads: any.
absl::StatusOr<sockaddr_un> UnixAddress(absl::string_view path);

}  // namespace ddprun

#endif  // DDPRUN_BASE_UNIX_ADDRESS_H_
