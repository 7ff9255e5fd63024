#include "launcher/schedulers/node_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/event_loop.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

constexpr int kBacklog = 4096;  // tasks of a node; the kernel takes less where it must
// An abstract socket has no file that could be watched, so its appearance is polled.
constexpr absl::Duration kRetryEvery = absl::Milliseconds(20);

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t size = 0;
};

AbstractAddress AddressOf(const std::string& name) {
  AbstractAddress result;
  result.address.sun_family = AF_UNIX;
  // The first byte stays 0: a name without a file.
  const size_t length = std::min(name.size(), sizeof(result.address.sun_path) - 1);
  std::copy_n(name.begin(), length, result.address.sun_path + 1);
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return result;
}

absl::StatusOr<Fd> NewSocket() {
  Fd socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) return ErrnoStatus(errno, "make a unix socket");
  return socket_fd;
}

const sockaddr* Generic(const AbstractAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.address);
}

// Connects, and waits for the end of the connection.
class NodeSocketWaiter {
 public:
  NodeSocketWaiter(EventLoop* loop, const std::string& name, absl::Duration patience)
      : loop_(loop),
        address_(AddressOf(name)),
        name_(name),
        give_up_at_(loop->Now() + patience),
        retry_(loop, [this] { Try(); }) {
    Try();
  }

  absl::StatusOr<bool> Result() const {
    if (!error_.ok()) return error_;
    return held_;
  }

 private:
  void Try() {
    absl::StatusOr<Fd> fresh = NewSocket();
    if (!fresh.ok()) return End(fresh.status());
    if (connect(fresh->get(), Generic(address_), address_.size) == 0) {
      socket_ = *std::move(fresh);
      held_ = true;
      // Nothing is ever written, so the first event is the end.
      watch_.emplace(loop_, socket_.get(), [this] { End(absl::OkStatus()); });
      return;
    }
    const int error = errno;
    if (error != ECONNREFUSED && error != EINTR) {
      return End(ErrnoStatus(error, absl::StrCat("reach the first task of this node at ", name_)));
    }
    if (loop_->Now() >= give_up_at_) return End(absl::OkStatus());
    retry_.Arm(loop_->Now() + kRetryEvery);
  }

  void End(absl::Status error) {
    error_ = std::move(error);
    watch_.reset();
    loop_->Stop();
  }

  EventLoop* loop_;
  const AbstractAddress address_;
  const std::string name_;
  const Instant give_up_at_;
  Timer retry_;
  Fd socket_;
  std::optional<FdWatch> watch_;
  bool held_ = false;
  absl::Status error_;
};

}  // namespace

absl::StatusOr<Fd> HoldNodeSocket(const std::string& name) {
  DDPRUN_ASSIGN_OR_RETURN(Fd socket_fd, NewSocket());
  const AbstractAddress address = AddressOf(name);
  if (bind(socket_fd.get(), Generic(address), address.size) != 0) {
    const int error = errno;
    if (error == EADDRINUSE) {
      return absl::AlreadyExistsError(absl::StrCat(
          "another task of this Slurm step launches on this node already (socket ", name, ")"));
    }
    return ErrnoStatus(error, absl::StrCat("bind the socket ", name));
  }
  if (listen(socket_fd.get(), kBacklog) != 0) {
    return ErrnoStatus(errno, absl::StrCat("listen on the socket ", name));
  }
  return socket_fd;
}

absl::StatusOr<bool> AwaitNodeSocket(const std::string& name, absl::Duration patience) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    std::signal(number, SIG_IGN);
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::unique_ptr<EventLoop> loop, EventLoop::Create());
  const NodeSocketWaiter waiter(loop.get(), name, patience);
  loop->Run();
  return waiter.Result();
}

}  // namespace ddprun::launcher
