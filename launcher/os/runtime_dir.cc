#include "launcher/os/runtime_dir.h"

#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/address.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "launcher/os/files.h"

namespace ddprun::launcher {
namespace {

// Room for the longest socket name in it within sockaddr_un.sun_path.
constexpr size_t kPathBytesMax = 90;

// The folders for runtime directories, best first.
std::vector<std::string> Bases() {
  std::vector<std::string> bases = TemporaryFolders();
  bases.push_back(absl::StrCat("/run/user/", geteuid()));
  // The working folder comes last, because its file system may have no sockets.
  std::error_code error;
  const std::string working = std::filesystem::current_path(error).string();
  const auto at = std::find(bases.rbegin(), bases.rend(), working);
  if (at != bases.rend()) std::rotate(at.base() - 1, at.base(), bases.end());
  const char* of_user = std::getenv("XDG_RUNTIME_DIR");
  // "If an implementation encounters a relative path it should consider the path invalid" (XDG).
  if (of_user != nullptr && *of_user == '/') bases.insert(bases.begin(), of_user);
  return bases;
}

// A socket of our own: in /tmp anybody may make folders.
bool IsOwnSocket(const std::string& path) {
  struct stat folder = {};
  struct stat socket = {};
  const std::string parent = path.substr(0, path.rfind('/'));
  if (lstat(parent.c_str(), &folder) != 0 || lstat(path.c_str(), &socket) != 0) return false;
  return S_ISDIR(folder.st_mode) && folder.st_uid == geteuid() && S_ISSOCK(socket.st_mode);
}

// A symbolic link, which is made and read in one step: its target is where the service beside it
// listens.
constexpr char kServicePort[] = "service.port";

// The process that listens on a socket of ours; 0 = none, or not visible here.
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
  const std::vector<std::string> bases = Bases();
  for (const std::string& base : bases) {
    std::string path = absl::StrCat(base, "/ddprun_XXXXXX");
    if (path.size() > kPathBytesMax) {
      first_error.Update(absl::InvalidArgumentError(
          absl::StrCat("'", base, "' is too long for a directory of unix sockets")));
      continue;
    }
    if (mkdtemp(path.data()) == nullptr) {
      first_error.Update(ErrnoStatus(errno, absl::StrCat("mkdtemp '", base, "/ddprun_XXXXXX'")));
      continue;
    }
    RuntimeDir made(std::move(path));
    const absl::Status can_write = TryFolder(made.path());
    if (can_write.ok()) return made;
    first_error.Update(can_write);
  }
  return absl::Status(first_error.code(),
                      absl::StrCat("no folder for sockets: ", first_error.message(),
                                   "; nor can any other be written of ", absl::StrJoin(bases, ", "),
                                   ": set TMPDIR to a folder of yours with a short path"));
}

std::vector<std::string> FindLocalSockets(const std::string& name) {
  std::set<std::string> found;
  for (const std::string& base : Bases()) {
    std::error_code error;  // of a folder that can't be read: nothing of ours is there
    for (const auto& entry : std::filesystem::directory_iterator(base, error)) {
      if (!absl::StartsWith(entry.path().filename().string(), "ddprun_")) continue;
      const std::string path = (entry.path() / name).string();
      if (IsOwnSocket(path)) found.insert(absl::StrCat("unix:", path));
    }
  }
  return {found.begin(), found.end()};
}

std::vector<LocalService> FindLocalServices() {
  std::vector<LocalService> services;
  for (std::string& socket : FindLocalSockets(kServiceSocket)) {
    const std::filesystem::path path(std::string(absl::StripPrefix(socket, "unix:")));
    std::error_code error;  // of a service without a port
    std::string listen = std::filesystem::read_symlink(path.parent_path() / kServicePort, error);
    services.push_back({.socket = std::move(socket), .listen = std::move(listen)});
  }
  return services;
}

bool SharesOurNetwork(const std::string& socket) {
  const pid_t listener = ListenerOf(std::string(absl::StripPrefix(socket, "unix:")));
  if (listener == 0) return false;  // of a PID namespace that isn't below ours
  const std::string theirs = NetworkOf(std::to_string(listener));
  return theirs.empty() || theirs == NetworkOf("self");
}

absl::Status RuntimeDir::PublishServicePort(const std::string& listen) const {
  const std::string path = File(kServicePort);
  unlink(path.c_str());  // of a former service of this agent
  if (symlink(listen.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("symlink '", path, "'"));
}

RuntimeDir::RuntimeDir(RuntimeDir&& other) noexcept : path_(std::exchange(other.path_, "")) {}

RuntimeDir::~RuntimeDir() {
  if (path_.empty()) return;
  RemoveFolder(path_);
  // Clean up here, at the agent's end, because it delays nothing.
  RemoveDeadRuntimeDirs(path_.substr(0, path_.rfind('/')));
}

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
