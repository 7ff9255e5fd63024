#include "launcher/side_channels/health_server.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "launcher/side_channels/core/health_http.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kClientsMax = 64;
constexpr absl::Duration kPatience = absl::Seconds(5);

// A listening socket of both protocols, or of IPv4 where the kernel has no other.
absl::StatusOr<std::pair<Fd, uint16_t>> Listen(uint16_t port) {
  const std::string what = absl::StrCat("listen for health checks on port ", port);
  Fd fd(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool v6 = fd.valid();
  if (!v6) fd.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, what);
  const int on = 1;
  const int off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in6 any6{.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
  sockaddr_in any4{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {INADDR_ANY}};
  if (v6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  const int bound = v6 ? bind(fd.get(), reinterpret_cast<sockaddr*>(&any6), sizeof(any6))
                       : bind(fd.get(), reinterpret_cast<sockaddr*>(&any4), sizeof(any4));
  if (bound != 0 || listen(fd.get(), SOMAXCONN) != 0) return ErrnoStatus(errno, what);
  sockaddr_in6 own{};
  socklen_t size = sizeof(own);
  // The port is at the same place in both forms.
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size);
  return std::make_pair(std::move(fd), ntohs(own.sin6_port));
}

}  // namespace

struct HealthServer::Client {
  Fd fd;
  std::string received;
  bool answered = false;
  std::unique_ptr<Timer> patience;
  std::unique_ptr<FdWatch> readable;
};

absl::StatusOr<std::unique_ptr<HealthServer>> HealthServer::Create(
    EventLoop* loop, uint16_t port, std::function<std::string()> body) {
  absl::StatusOr<std::pair<Fd, uint16_t>> listener = Listen(port);
  if (!listener.ok()) return listener.status();
  return std::unique_ptr<HealthServer>(
      new HealthServer(loop, std::move(listener->first), listener->second, std::move(body)));
}

HealthServer::HealthServer(EventLoop* loop, Fd listener, uint16_t port,
                           std::function<std::string()> body)
    : loop_(loop),
      listener_(std::move(listener)),
      port_(port),
      body_(std::move(body)),
      acceptable_(std::make_unique<FdWatch>(loop, listener_.get(), [this] { Accept(); })) {}

HealthServer::~HealthServer() {
  acceptable_.reset();
  for (Client& client : clients_) client.readable.reset();
}

void HealthServer::Accept() {
  Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) return;
  if (clients_.size() >= kClientsMax) clients_.pop_front();
  const auto client = clients_.emplace(clients_.end());
  client->fd = std::move(fd);
  client->patience = std::make_unique<Timer>(loop_, [this, client] { clients_.erase(client); });
  client->patience->Arm(loop_->Now() + kPatience);
  client->readable =
      std::make_unique<FdWatch>(loop_, client->fd.get(), [this, client] { Read(client); });
}

void HealthServer::Read(std::list<Client>::iterator client) {
  char bytes[4096];
  const ssize_t n = read(client->fd.get(), bytes, sizeof(bytes));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    clients_.erase(client);
    return;
  }
  // Bytes after the answer are still read: closing with unread bytes would reset the connection,
  // and the client might lose the answer. The client's time limit bounds this.
  if (client->answered) return;
  client->received.append(bytes, static_cast<size_t>(n));
  const std::optional<std::string> answer = AnswerHealthRequest(client->received, body_());
  if (!answer.has_value()) return;
  client->answered = true;
  client->received.clear();
  // Less than what a fresh socket's buffer takes; a client that is gone needs no answer.
  [[maybe_unused]] const ssize_t sent =
      send(client->fd.get(), answer->data(), answer->size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  shutdown(client->fd.get(), SHUT_WR);
}

}  // namespace ddprun::launcher
