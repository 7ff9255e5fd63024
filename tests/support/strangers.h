#ifndef DDPRUN_TESTS_SUPPORT_STRANGERS_H_
#define DDPRUN_TESTS_SUPPORT_STRANGERS_H_

#include <arpa/inet.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/event_loop.h"
#include "base/fd.h"

// Clients that connect to a port of ours over TCP and are nobody's agent.
namespace ddprun::rendezvous {

// What a client of HTTP/2 says first: the preface, and settings that set nothing.
inline constexpr absl::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
                                            33);

// One frame of HTTP/2 (RFC 9113, 4.1).
inline std::string Frame(char kind, char flags, uint32_t stream, absl::string_view payload) {
  const auto byte = [](size_t value, int shift) { return static_cast<char>(value >> shift & 255); };
  std::string frame = {byte(payload.size(), 16),
                       byte(payload.size(), 8),
                       byte(payload.size(), 0),
                       kind,
                       flags,
                       byte(stream, 24),
                       byte(stream, 16),
                       byte(stream, 8),
                       byte(stream, 0)};
  absl::StrAppend(&frame, payload);
  return frame;
}

// Returns the frame that begins a call on the stream with that number (odd), and nothing more.
inline std::string BeginCall(uint32_t stream, absl::string_view path) {
  std::string head;
  const auto add = [&head](absl::string_view name, absl::string_view value) {
    head += '\0';  // a name and a value, as they are (RFC 7541, 6.2.2)
    for (const absl::string_view text : {name, value}) {
      head += static_cast<char>(text.size());  // below 127
      absl::StrAppend(&head, text);
    }
  };
  add(":method", "POST");
  add(":scheme", "http");
  add(":path", path);
  add(":authority", "x");
  add("te", "trailers");
  add("content-type", "application/grpc");
  return Frame(/*kind=HEADERS*/ 1, /*flags=END_HEADERS*/ 4, stream, head);
}

inline sockaddr_in Loopback(const char* address, int port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<in_port_t>(port));
  inet_pton(AF_INET, address, &name.sin_addr);
  return name;
}

// Connects without waiting for the result. Returns 0 or an errno.
inline int Connect(int fd, int port, const char* from = "127.0.0.1") {
  const sockaddr_in own = Loopback(from, 0);
  const sockaddr_in name = Loopback("127.0.0.1", port);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0) return errno;
  const int result = connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name));
  return result == 0 || errno == EINPROGRESS ? 0 : errno;
}

// A connection that sends any bytes.
class Stranger {
 public:
  explicit Stranger(EventLoop* loop)
      : loop_(loop), fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}

  // Returns an errno or 0.
  int Come(int port, absl::string_view says = kPreface, const char* from = "127.0.0.1") {
    if (const int error = Connect(fd_.get(), port, from); error != 0) return error;
    pollfd connected{.fd = fd_.get(), .events = POLLOUT, .revents = 0};
    poll(&connected, 1, 5000);
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return error;
    Say(says);
    watch_ = std::make_unique<FdWatch>(loop_, fd_.get(), [this] { Read(); });
    return 0;
  }
  void Say(absl::string_view bytes) {
    [[maybe_unused]] const ssize_t n = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  bool served() const { return served_; }  // gRPC has sent its settings
  bool ended() const { return ended_; }

 private:
  void Read() {
    char bytes[256];
    const ssize_t n = read(fd_.get(), bytes, sizeof(bytes));
    served_ = served_ || n > 0;
    if (n > 0 || (n < 0 && errno == EAGAIN)) return;
    ended_ = true;
    watch_.reset();
  }

  EventLoop* const loop_;
  Fd fd_;
  bool served_ = false;
  bool ended_ = false;
  std::unique_ptr<FdWatch> watch_;
};

// Silent connections, made by a process with descriptors of its own.
class Crowd {
 public:
  Crowd(EventLoop* loop, int port, int count, const char* from)
      : told_(*MakePipe()), life_(*MakePipe()) {
    child_ = fork();
    if (child_ == 0) Live(port, count, from);
    told_.second.Reset();
    life_.first.Reset();
    watch_ = std::make_unique<FdWatch>(loop, told_.first.get(), [this] {
      char bytes[8];
      const ssize_t n = read(told_.first.get(), bytes, sizeof(bytes));
      here_ = here_ || n > 0;
      if (n <= 0) watch_.reset();
    });
  }
  ~Crowd() { Go(); }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Whether all connections are made, as far as the service lets them.
  bool here() const { return here_; }
  void Go() {
    if (child_ < 0) return;
    watch_.reset();
    life_.second.Reset();
    waitpid(std::exchange(child_, -1), nullptr, 0);
  }

 private:
  // Uses only system calls, because the process is forked from one with threads.
  [[noreturn]] void Live(int port, int count, const char* from) const {
    dup2(told_.second.get(), 100);
    dup2(life_.first.get(), 101);
    dup2(100, 3);
    dup2(101, 4);
    close_range(5, ~0U, 0);
    RaiseDescriptorLimit();
    for (int i = 0; i < count; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      if (fd >= 0) Connect(fd, port, from);
    }
    char byte = 'x';
    _exit(write(3, &byte, 1) == 1 && read(4, &byte, 1) == 0 ? 0 : 1);
  }

  FdPair told_;
  FdPair life_;
  pid_t child_ = -1;
  bool here_ = false;
  std::unique_ptr<FdWatch> watch_;
};

// Lowers this process's limit on descriptors for a while.
class DescriptorsAtMost {
 public:
  explicit DescriptorsAtMost(rlim_t most) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lowered{.rlim_cur = most, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &lowered);
  }
  ~DescriptorsAtMost() { End(); }
  void End() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_SUPPORT_STRANGERS_H_
