#include "launcher/os/runtime_dir.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/unix_address.h"
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

// The process that listens on a socket of ours; 0 = nobody, or it isn't known here.
pid_t ListenerOf(const std::string& path) {
  const absl::StatusOr<sockaddr_un> address = UnixAddress(path);
  const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!address.ok() || !fd.valid()) return 0;
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    return 0;
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

// "net:[4026531840]"; "" = it can't be read.
std::string NetworkOf(const std::string& process) {
  std::error_code error;
  return std::filesystem::read_symlink(absl::StrCat("/proc/", process, "/ns/net"), error).string();
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

bool SharesOurNetwork(const std::string& socket) {
  const pid_t listener = ListenerOf(std::string(absl::StripPrefix(socket, "unix:")));
  if (listener == 0) return false;  // of a PID namespace that isn't below ours
  const std::string theirs = NetworkOf(std::to_string(listener));
  return theirs.empty() || theirs == NetworkOf("self");
}

RuntimeDir::RuntimeDir(RuntimeDir&& other) noexcept : path_(std::exchange(other.path_, "")) {}

RuntimeDir::~RuntimeDir() { RemoveFolder(path_); }

}  // namespace ddprun::launcher
