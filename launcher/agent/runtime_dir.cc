#include "launcher/agent/runtime_dir.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "launcher/os/folders.h"

namespace ddprun::launcher {
namespace {

// Room for the longest socket name in it within sockaddr_un.sun_path.
constexpr size_t kPathBytesMax = 90;

}  // namespace

absl::StatusOr<RuntimeDir> RuntimeDir::Create() {
  absl::Status first_error;
  const std::array<const char*, 3> bases = {std::getenv("XDG_RUNTIME_DIR"), std::getenv("TMPDIR"),
                                            "/tmp"};
  for (const char* base : bases) {
    if (base == nullptr || *base == '\0') continue;
    std::string path = absl::StrCat(base, "/ddprun_XXXXXX");
    if (path.size() > kPathBytesMax) {
      first_error.Update(absl::InvalidArgumentError(
          absl::StrCat("'", base, "' is too long for a directory of unix sockets")));
      continue;
    }
    if (mkdtemp(path.data()) != nullptr) return RuntimeDir(std::move(path));
    first_error.Update(ErrnoStatus(errno, absl::StrCat("mkdtemp '", base, "/ddprun_XXXXXX'")));
  }
  return first_error;
}

RuntimeDir::RuntimeDir(RuntimeDir&& other) noexcept : path_(std::exchange(other.path_, "")) {}

RuntimeDir::~RuntimeDir() { RemoveFolder(path_); }

}  // namespace ddprun::launcher
