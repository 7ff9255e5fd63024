#include "launcher/os/dead_runtime_dirs.h"

#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fd.h"
#include "base/unix_address.h"
#include "launcher/os/folders.h"
#include "launcher/os/runtime_dir.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kRemovedMax = 64;
constexpr int64_t kXfsMagic = 0x58465342;  // "XFSB"; linux/magic.h hasn't it
// File systems of one machine. What isn't known may be shared.
constexpr int64_t kOfOneMachine[] = {EXT4_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC,
                                     BTRFS_SUPER_MAGIC, kXfsMagic};

bool IsOfOneMachine(const std::string& path) {
  struct statfs facts {};
  if (statfs(path.c_str(), &facts) != 0) return false;
  return std::find(std::begin(kOfOneMachine), std::end(kOfOneMachine), int64_t{facts.f_type}) !=
         std::end(kOfOneMachine);
}

// Whether the socket exists and has no listener.
bool Refuses(const std::string& path) {
  const absl::StatusOr<sockaddr_un> address = UnixAddress(path);
  const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!address.ok() || !fd.valid()) return false;
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0 &&
         errno == ECONNREFUSED;
}

bool IsDead(const std::string& path, absl::Time newest) {
  struct stat folder {};
  struct stat socket {};
  const std::string agent = absl::StrCat(path, "/", kAgentSocket);
  const std::string service = absl::StrCat(path, "/", kServiceSocket);
  if (lstat(path.c_str(), &folder) != 0 || !S_ISDIR(folder.st_mode)) return false;
  if (folder.st_uid != geteuid() || absl::TimeFromTimespec(folder.st_mtim) > newest) return false;
  bool had_socket = false;
  for (const std::string& path_of_socket : {agent, service}) {
    if (lstat(path_of_socket.c_str(), &socket) != 0) continue;
    if (!S_ISSOCK(socket.st_mode) || !Refuses(path_of_socket)) return false;
    had_socket = true;
  }
  return had_socket;
}

}  // namespace

void RemoveDeadRuntimeDirs(const std::string& base, absl::Duration least_age) {
  if (!IsOfOneMachine(base)) return;
  const absl::Time newest = absl::Now() - least_age;
  std::vector<std::string> dead;
  std::error_code error;
  for (std::filesystem::directory_iterator each(base, error), end; !error && each != end;
       each.increment(error)) {
    const std::string path = each->path().string();
    if (!absl::StartsWith(each->path().filename().string(), "ddprun_")) continue;
    if (IsDead(path, newest)) dead.push_back(path);
    if (dead.size() == kRemovedMax) break;
  }
  for (const std::string& path : dead) RemoveFolder(path);
}

}  // namespace ddprun::launcher
