#include "launcher/daemon/daemon_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/address.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "ddprun/daemon/v1/daemon.pb.h"
#include "launcher/daemon/spare.h"
#include "launcher/daemon/warden.h"
#include "launcher/keeper/agent_seat.h"
#include "launcher/keeper/channel.h"
#include "launcher/os/files.h"

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

namespace {

constexpr absl::Duration kPatience = absl::Seconds(1);
// The keeper's channel and pidfd, the warden's pidfd and socket.
constexpr size_t kLeasedFds = 4;

struct Reply {
  daemon::v1::Answer answer;
  std::vector<Fd> fds;
};

absl::Status Send(int socket, daemon::v1::Request request) {
  request.set_program(ProgramIdentity());
  return SendQueue(socket).Send(request.SerializeAsString());
}

absl::StatusOr<Reply> Ask(int socket, daemon::v1::Request request) {
  DDPRUN_RETURN_IF_ERROR(Send(socket, std::move(request)));
  pollfd wait{.fd = socket, .events = POLLIN, .revents = 0};
  if (poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) != 1) {
    return absl::DeadlineExceededError("the daemon doesn't answer");
  }
  absl::StatusOr<std::optional<Message>> message = ReceiveMessage(socket);
  Reply reply;
  if (!message.ok() || !message->has_value() || !reply.answer.ParseFromString((*message)->bytes)) {
    return absl::UnavailableError("the daemon has closed the connection");
  }
  reply.fds = std::move((*message)->fds);
  return reply;
}

absl::Status TakeKeeper(Reply reply, const KeeperOptions& options, DaemonVisit* visit) {
  if (reply.fds.size() != kLeasedFds)
    return absl::UnavailableError("the daemon's answer is broken");
  KeeperProcess keeper{.pid = static_cast<pid_t>(reply.answer.leased().keeper_pid()),
                       .channel = std::move(reply.fds[0]),
                       .pidfd = std::move(reply.fds[1]),
                       .warden_pidfd = std::move(reply.fds[2]),
                       .warden = std::move(reply.fds[3])};
  DDPRUN_RETURN_IF_ERROR(AdoptKeeper(options, kPatience, &keeper));
  visit->ready = reply.answer.leased().ready();
  visit->keeper = std::move(keeper);
  return absl::OkStatus();
}

absl::Status Visit(const LaunchPlan& plan, const EnvironmentLookup& environment,
                   const KeeperOptions& options, DaemonVisit* visit) {
  DDPRUN_ASSIGN_OR_RETURN(Fd socket, ConnectToDaemon(DaemonFolder(environment)));
  daemon::v1::Request request;
  DDPRUN_ASSIGN_OR_RETURN(*request.mutable_lease()->mutable_recipe(),
                          MakeSpareRecipe(plan, environment));
  DDPRUN_ASSIGN_OR_RETURN(Reply reply, Ask(socket.get(), std::move(request)));
  visit->is_there = true;
  visit->connection = std::move(socket);
  if (reply.answer.has_leased()) return TakeKeeper(std::move(reply), options, visit);
  visit->why = reply.answer.cold().why();
  visit->tells = reply.answer.cold().differs();
  return absl::OkStatus();
}

}  // namespace

DaemonVisit VisitDaemon(const LaunchPlan& plan, const EnvironmentLookup& environment,
                        const KeeperOptions& options) {
  DaemonVisit visit;
  const absl::Status status = Visit(plan, environment, options, &visit);
  if (!status.ok() && !absl::IsNotFound(status)) {
    visit.why = std::string(status.message());
    visit.tells = true;
  }
  return visit;
}

void NotifySettled(const Fd& connection) {
  if (!connection.valid()) return;
  daemon::v1::Request request;
  request.mutable_settled();
  Send(connection.get(), std::move(request)).IgnoreError();  // a daemon that is gone needs nothing
}

absl::StatusOr<daemon::v1::Shelf> AskForShelf(const std::string& folder, bool stop) {
  absl::StatusOr<Fd> socket = ConnectToDaemon(folder);
  if (absl::IsNotFound(socket.status())) {
    return absl::NotFoundError("no daemon of yours runs on this machine; ddprun daemon starts one");
  }
  DDPRUN_RETURN_IF_ERROR(socket.status());
  daemon::v1::Request request;
  if (stop) {
    request.mutable_stop();
  } else {
    request.mutable_look();
  }
  DDPRUN_ASSIGN_OR_RETURN(Reply reply, Ask(socket->get(), std::move(request)));
  if (reply.answer.has_shelf()) return std::move(*reply.answer.mutable_shelf());
  return absl::FailedPreconditionError(reply.answer.cold().why());
}

}  // namespace ddprun::launcher
