#include "launcher/stores/tcp_store_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/address.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/packet.h"
#include "launcher/machine/host_probe.h"
#include "rendezvous/wire/peer.h"

namespace ddprun::launcher {
namespace {

// The most work of one event, so that a busy client delays the agent's other events by less than a
// millisecond.
constexpr size_t kReadBytes = 64U << 10;
constexpr int kAcceptsPerEvent = 64;
// A port scanner must not fill the log.
constexpr uint32_t kNotesMax = 16;

// Like accept(2), for a connection that the service has accepted and passes on.
Fd AcceptPassed(int socket, sockaddr_storage* peer) {
  std::string bytes(1, '\0');
  Packet packet = ReceivePacket(socket, &bytes);
  if (packet.size < 0) return Fd();
  if (packet.fds.empty()) {
    errno = EMFILE;  // the kernel drops what this process has no descriptor for
    return Fd();
  }
  socklen_t length = sizeof(*peer);
  if (getpeername(packet.fds[0].get(), reinterpret_cast<sockaddr*>(peer), &length) == 0) {
    return std::move(packet.fds[0]);
  }
  packet.fds.clear();
  errno = ECONNABORTED;
  return Fd();
}

bool IsTransient(int error) {
  // accept(2): errors of the new connection itself, which is gone.
  return error == EINTR || error == ECONNABORTED || error == EPROTO || error == ENETDOWN ||
         error == EHOSTUNREACH || error == ENETUNREACH || error == ETIMEDOUT || error == EPERM;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpStoreServer>> TcpStoreServer::Start(EventLoop* loop, Fd listener,
                                                                      const Options& options) {
  if (!options.listener_passes_on && listen(listener.get(), SOMAXCONN) != 0) {
    return absl::UnavailableError(
        absl::StrCat(ErrnoStatus(errno, "listen for the workers' store").message(),
                     "; stop the process that uses the port, or choose another --master_port"));
  }
  if (absl::Status status = SetNonBlocking(listener.get(), true); !status.ok()) return status;
  std::unique_ptr<TcpStoreServer> server(new TcpStoreServer(loop, std::move(listener), options));
  server->DropAbandoned();
  return server;
}

TcpStoreServer::TcpStoreServer(EventLoop* loop, Fd listener, const Options& options)
    : loop_(loop),
      listener_(std::move(listener)),
      this_machine_only_(options.this_machine_only),
      listener_passes_on_(options.listener_passes_on),
      store_(options.bounds),
      keeper_(options.door.value_or(rendezvous::DoorBoundsFor(DescriptorLimit()))),
      accept_watch_(std::make_unique<FdWatch>(loop, listener_.get(), [this] { AcceptSome(); })),
      accept_again_(loop, [this] { WaitOrAccept(); }),
      on_client_(options.on_client),
      buffer_(kReadBytes, '\0') {}

TcpStoreServer::~TcpStoreServer() {
  // Watches go before their descriptors.
  for (auto& [id, connection] : connections_) connection.watch.reset();
  accept_watch_.reset();
}

// ------------------------------------------------------------- connections

// An invalid Fd and errno: EAGAIN = there is none.
Fd TcpStoreServer::Accept(sockaddr_storage* peer) {
  if (listener_passes_on_) return AcceptPassed(listener_.get(), peer);
  socklen_t length = sizeof(*peer);
  return Fd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(peer), &length,
                    SOCK_NONBLOCK | SOCK_CLOEXEC));
}

void TcpStoreServer::DropAbandoned() {
  sockaddr_storage peer{};
  for (Fd socket = Accept(&peer); socket.valid() || IsTransient(errno); socket = Accept(&peer)) {
    if (!socket.valid()) continue;
    pollfd state{.fd = socket.get(), .events = POLLRDHUP, .revents = 0};
    if (poll(&state, 1, 0) == 1) continue;
    Add(std::move(socket), peer);
  }
}

void TcpStoreServer::AcceptSome() {
  for (int i = 0; i < kAcceptsPerEvent && keeper_.NextAccept() <= loop_->Now(); ++i) {
    sockaddr_storage peer{};
    Fd socket = Accept(&peer);
    if (socket.valid()) {
      Add(std::move(socket), peer);
    } else if (errno == EAGAIN) {
      break;
    } else if (!IsTransient(errno)) {
      OutOfDescriptors(errno);
    }
  }
  WaitOrAccept();
}

void TcpStoreServer::Add(Fd socket, const sockaddr_storage& peer) {
  const std::string address = AddressText(reinterpret_cast<const sockaddr*>(&peer));
  if (this_machine_only_ && !IsOwnAddress(address)) {
    Note(absl::StrCat("the workers' store closes a connection from ", address,
                      ": MASTER_ADDR is a loopback address, so only this machine may use it"));
    return;
  }
  const TcpConnectionId id(++last_connection_);
  const rendezvous::Doorkeeper::Answer answer =
      keeper_.Accepted(rendezvous::ConnectionId(id.value()),
                       rendezvous::AddressGroup(rendezvous::PeerOf(peer)), loop_->Now());
  Evict(answer.evicted);
  if (!answer.admitted) return;
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  store_.Open(id);
  Connection& connection = connections_[id];
  connection.peer = address;
  connection.watch = std::make_unique<FdWatch>(loop_, socket.get(), [this, id] { OnReady(id); });
  connection.watch->WatchFor(/*readable=*/true, /*writable=*/false);
  connection.socket = std::move(socket);
}

void TcpStoreServer::OnReady(TcpConnectionId id) {
  Connection& connection = connections_.at(id);
  if (!connection.unsent.empty()) {
    if (!Flush(&connection)) return Close(id);
    if (!connection.unsent.empty()) return;  // don't read from a client that doesn't read
    connection.watch->WatchFor(/*readable=*/true, /*writable=*/false);
  }
  const ssize_t got = recv(connection.socket.get(), buffer_.data(), buffer_.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return Close(id);  // the end, or a reset: the client's process has ended
  const bool had_asked = store_.HasAsked(id);
  std::vector<TcpStoreEffect> effects =
      store_.Receive(id, absl::string_view(buffer_.data(), static_cast<size_t>(got)));
  if (!had_asked && store_.HasAsked(id)) NotifyClient(id);
  if (store_.HasAsked(id)) keeper_.Forget(rendezvous::ConnectionId(id.value()));
  Apply(std::move(effects));
  WaitOrAccept();
}

void TcpStoreServer::NotifyClient(TcpConnectionId id) {
  if (!on_client_) return;
  const int socket = connections_.at(id).socket.get();
  sockaddr_storage peer{};
  socklen_t length = sizeof(peer);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return;
  const rendezvous::PeerAddress address = rendezvous::PeerOf(peer);
  on_client_({.of_this_machine = IsOwnAddress(connections_.at(id).peer),
              .host = address.host,
              .pid = store_.PingOf(id)});
}

void TcpStoreServer::Apply(std::vector<TcpStoreEffect> effects) {
  for (TcpStoreEffect& effect : effects) {
    const auto found = connections_.find(effect.connection);
    if (found == connections_.end()) continue;  // it broke a moment ago
    Connection& connection = found->second;
    if (!effect.error.ok()) {
      Note(absl::StrCat("the workers' store closes a connection from ", connection.peer, ": ",
                        effect.error.message()));
      Close(effect.connection);
      continue;
    }
    const bool was_blocked = !connection.unsent.empty();
    connection.unsent.push_back({std::move(effect.bytes), std::move(effect.value)});
    if (was_blocked) continue;
    if (!Flush(&connection)) {
      Close(effect.connection);
    } else if (!connection.unsent.empty()) {
      connection.watch->WatchFor(/*readable=*/false, /*writable=*/true);
    }
  }
}

bool TcpStoreServer::Flush(Connection* connection) {
  while (!connection->unsent.empty()) {
    const Piece& piece = connection->unsent.front();
    const size_t head = piece.bytes.size();
    const size_t total = head + (piece.value == nullptr ? 0 : piece.value->size());
    std::array<iovec, 2> parts{};
    size_t count = 0;
    if (connection->sent < head) {
      parts[count++] = {const_cast<char*>(piece.bytes.data()) + connection->sent,
                        head - connection->sent};
    }
    if (piece.value != nullptr) {
      const size_t skip = connection->sent > head ? connection->sent - head : 0;
      parts[count++] = {const_cast<char*>(piece.value->data()) + skip, piece.value->size() - skip};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(connection->socket.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN;
    connection->sent += static_cast<size_t>(sent);
    if (connection->sent < total) continue;
    connection->unsent.pop_front();
    connection->sent = 0;
  }
  return true;
}

void TcpStoreServer::Close(TcpConnectionId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  found->second.watch.reset();
  connections_.erase(found);
  store_.Close(id);
  keeper_.Forget(rendezvous::ConnectionId(id.value()));
  WaitOrAccept();
}

// ------------------------------------------------------------- without places or descriptors

void TcpStoreServer::Evict(std::optional<rendezvous::ConnectionId> stranger) {
  if (!stranger.has_value()) return;
  const TcpConnectionId id(stranger->value());
  if (const auto found = connections_.find(id); found != connections_.end()) {
    Note(absl::StrCat("the workers' store closes a connection from ", found->second.peer,
                      ": others need the place of this one, which has asked nothing"));
  }
  Close(id);
}

void TcpStoreServer::OutOfDescriptors(int error) {
  Note(absl::StrCat(ErrnoStatus(error, "accept a connection to the workers' store").message(), "; ",
                    connections_.size(), " connections are open"));
  Evict(keeper_.OutOfDescriptors(loop_->Now()));
}

void TcpStoreServer::WaitOrAccept() {
  const Instant next = keeper_.NextAccept();
  const bool accepts = next <= loop_->Now();
  if (!accepts) accept_again_.Arm(next);
  if (std::exchange(accepting_, accepts) == accepts) return;
  if (accepts) {
    accept_again_.Disarm();
    accept_watch_->Resume();
  } else {
    accept_watch_->Pause();
  }
}

void TcpStoreServer::Note(const std::string& text) {
  if (++notes_ > kNotesMax) return;
  Log(LogLevel::kWarning,
      notes_ < kNotesMax ? text : absl::StrCat(text, " (further ones are not shown)"));
}

}  // namespace ddprun::launcher
