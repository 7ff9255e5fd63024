#ifndef DDPRUN_LAUNCHER_OS_TEXT_FILES_H_
#define DDPRUN_LAUNCHER_OS_TEXT_FILES_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Reads a file of at most `bytes_max` bytes. Errors: of open(2), read(2); RESOURCE_EXHAUSTED — the
// file is longer.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t bytes_max);

// Writes a file atomically: readers see the old text or the new one. Errors: of open(2), write(2),
// rename(2).
absl::Status WriteFile(const std::string& path, absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_TEXT_FILES_H_
