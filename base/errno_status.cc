#include "base/errno_status.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace ddprun {

absl::Status ErrnoStatus(int error_number, absl::string_view what) {
  const char* name = strerrorname_np(error_number);
  return {absl::ErrnoToStatusCode(error_number),
          absl::StrCat(what, ": ",
                       strerrordesc_np(error_number) != nullptr ? strerrordesc_np(error_number)
                                                                : "unknown error",
                       " (errno ", error_number, name != nullptr ? ", " : "",
                       name != nullptr ? name : "", ")")};
}

}  // namespace ddprun
