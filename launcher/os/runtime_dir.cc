#include "launcher/os/runtime_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "launcher/os/folders.h"

namespace ddprun::launcher {
namespace {

// Room for the longest socket name in it within sockaddr_un.sun_path.
constexpr size_t kPathBytesMax = 90;

// Where they are made, best first; null or empty = not there.
std::array<const char*, 3> Bases() {
  return {std::getenv("XDG_RUNTIME_DIR"), std::getenv("TMPDIR"), "/tmp"};
}

// A socket of our own: in /tmp anybody may make folders.
bool IsOwnSocket(const std::string& path) {
  struct stat folder = {};
  struct stat socket = {};
  const std::string parent = path.substr(0, path.rfind('/'));
  if (lstat(parent.c_str(), &folder) != 0 || lstat(path.c_str(), &socket) != 0) return false;
  return S_ISDIR(folder.st_mode) && folder.st_uid == geteuid() && S_ISSOCK(socket.st_mode);
}

}  // namespace

absl::StatusOr<RuntimeDir> RuntimeDir::Create() {
  absl::Status first_error;
  for (const char* base : Bases()) {
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

std::vector<std::string> FindLocalSockets(const std::string& name) {
  std::set<std::string> found;
  for (const char* base : Bases()) {
    if (base == nullptr || *base == '\0') continue;
    std::error_code error;  // of a folder that can't be read: nothing of ours is there
    for (const auto& entry : std::filesystem::directory_iterator(base, error)) {
      if (!absl::StartsWith(entry.path().filename().string(), "ddprun_")) continue;
      const std::string path = (entry.path() / name).string();
      if (IsOwnSocket(path)) found.insert(absl::StrCat("unix:", path));
    }
  }
  return {found.begin(), found.end()};
}

RuntimeDir::RuntimeDir(RuntimeDir&& other) noexcept : path_(std::exchange(other.path_, "")) {}

RuntimeDir::~RuntimeDir() { RemoveFolder(path_); }

}  // namespace ddprun::launcher
