#include "launcher/daemon/meeting_place.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "base/unix_address.h"
#include "launcher/os/folders.h"
#include "launcher/os/text_files.h"

namespace ddprun::launcher {
namespace {

constexpr char kSocketName[] = "/socket";
constexpr char kLockName[] = "/lock";
constexpr int kBacklog = 16;
constexpr size_t kHostBytesMax = 256;

absl::StatusOr<sockaddr_un> AddressOf(const std::string& folder) {
  const std::string path = folder + kSocketName;
  absl::StatusOr<sockaddr_un> address = UnixAddress(path);
  if (address.ok()) return address;
  return absl::InvalidArgumentError(absl::StrCat("'", path, "': ", address.status().message(),
                                                 "; set XDG_RUNTIME_DIR to a shorter one"));
}

absl::StatusOr<Fd> LockFolder(const std::string& folder) {
  const std::string path = folder + kLockName;
  Fd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return ErrnoStatus(errno, absl::StrCat("open '", path, "'"));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("a daemon of yours runs already on this machine (pid ",
                     absl::StripSuffix(ReadFile(path, 64).value_or("?"), "\n"),
                     "); ddprun daemon stop ends it"));
  }
  if (ftruncate(lock.get(), 0) != 0) return ErrnoStatus(errno, absl::StrCat("write '", path, "'"));
  DDPRUN_RETURN_IF_ERROR(WriteAll(lock.get(), absl::StrCat(getpid(), "\n")));
  return lock;
}

}  // namespace

std::string DaemonFolder(const EnvironmentLookup& environment) {
  if (std::string own = environment("DDPRUN_DAEMON_DIR").value_or(""); !own.empty()) return own;
  if (const std::string run = environment("XDG_RUNTIME_DIR").value_or("");
      !run.empty() && run.front() == '/') {
    return run + "/ddprun-daemon";
  }
  const std::string cache = UserFolder(environment, "XDG_CACHE_HOME", ".cache");
  if (cache.empty()) return "";
  char host[kHostBytesMax] = {};
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(cache, "/ddprun/daemon-", host);
}

absl::Status CheckOwnFolder(const std::string& folder) {
  struct stat facts {};
  if (lstat(folder.c_str(), &facts) != 0) {
    return ErrnoStatus(errno, absl::StrCat("look at '", folder, "'"));
  }
  if (S_ISDIR(facts.st_mode) && facts.st_uid == geteuid() && (facts.st_mode & 077) == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat("'", folder,
                   "' is not a folder of yours that nobody else may enter (mode 0700); "
                   "remove it"));
}

absl::Status CheckOwnPeer(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return ErrnoStatus(errno, "SO_PEERCRED");
  }
  if (peer.uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("the process at the other end is user ", peer.uid,
                                                  "'s, and this is ", geteuid(), "'s"));
}

absl::StatusOr<Fd> ConnectToDaemon(const std::string& folder) {
  if (folder.empty()) return absl::NotFoundError("neither XDG_RUNTIME_DIR nor HOME is set");
  DDPRUN_RETURN_IF_ERROR(CheckOwnFolder(folder));
  DDPRUN_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(folder));
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == ECONNREFUSED || errno == ENOENT) {
      return absl::NotFoundError(absl::StrCat("no daemon of yours runs on this machine (", folder,
                                              "); ddprun daemon starts one"));
    }
    return ErrnoStatus(errno, absl::StrCat("connect to ", folder, kSocketName));
  }
  DDPRUN_RETURN_IF_ERROR(CheckOwnPeer(fd.get()));
  return fd;
}

absl::StatusOr<DaemonSeat> TakeDaemonSeat(const std::string& folder) {
  if (folder.empty()) {
    return absl::FailedPreconditionError("neither XDG_RUNTIME_DIR nor HOME is set");
  }
  umask(077);
  DDPRUN_RETURN_IF_ERROR(MakeFolders(folder));
  DDPRUN_RETURN_IF_ERROR(CheckOwnFolder(folder));
  DDPRUN_ASSIGN_OR_RETURN(Fd lock, LockFolder(folder));
  DDPRUN_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(folder));
  unlink(address.sun_path);
  Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid() ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener.get(), kBacklog) != 0) {
    return ErrnoStatus(errno, absl::StrCat("listen on ", address.sun_path));
  }
  return DaemonSeat{.lock = std::move(lock), .listener = std::move(listener)};
}

}  // namespace ddprun::launcher
