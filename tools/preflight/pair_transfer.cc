#include "tools/preflight/pair_transfer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"
#include "tools/preflight/core/flood_rate.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kSending = absl::Milliseconds(60);
constexpr size_t kSendingBytes = 16 << 20;
// The bytes of a flood, and its end mark. The end of the stream can't serve as the mark: poll(2)
// shows the same for a connection that both ends have shut down and for one that is gone.
constexpr char kFlood = 'x';
constexpr char kFloodEnd = '.';
// A sender that is this late at the end of its time has waited for a processor, and goes on
// sending. The few bytes that it has sent may all have been a burst that buffers and shapers let
// pass, even on a slow link.
constexpr absl::Duration kLate = absl::Milliseconds(20);
constexpr int kTriesMax = 3;
// How long a receiver waits for a flood; bytes that are still in queues then don't count.
constexpr absl::Duration kReceiving = absl::Milliseconds(400);
// A lost SYN is sent again by the kernel after a second; a new attempt each time is sooner.
constexpr absl::Duration kAttempt = absl::Milliseconds(200);
constexpr int kAttempts = 4;
// How late the other end of a pair may be: its turns before this one took their time.
constexpr absl::Duration kLateness = absl::Milliseconds(1500);
constexpr int kUnsent = 128 << 10;  // that a sender keeps in its socket, beyond what is on its way
constexpr size_t kChunk = 256 << 10;

std::string KeyBytes(const TransferKey& key) {
  std::string bytes("ddpX");
  bytes.append(reinterpret_cast<const char*>(&key.token), sizeof(key.token));
  bytes.append(reinterpret_cast<const char*>(&key.round), sizeof(key.round));
  return bytes;
}

absl::Status SendUntil(Instant deadline, int fd, absl::string_view chunk, size_t* sent) {
  while (*sent < kSendingBytes && MonotonicNow() < deadline) {
    const size_t size = std::min(chunk.size(), kSendingBytes - *sent);
    const ssize_t n = send(fd, chunk.data(), size, MSG_NOSIGNAL);
    if (n > 0) *sent += static_cast<size_t>(n);
    if (n >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return ErrnoStatus(errno, "send");
    if (!AwaitReady(fd, POLLOUT, deadline).ok()) break;
  }
  return absl::OkStatus();
}

// Sends as much as possible within kSending, then the end mark.
absl::Status SendFlood(int fd) {
  const std::string chunk(kChunk, kFlood);
  size_t sent = 0;
  bool late = true;
  for (int i = 0; i < kTriesMax && late && sent < kSendingBytes; ++i) {
    const Instant deadline = MonotonicNow() + kSending;
    DDPRUN_RETURN_IF_ERROR(SendUntil(deadline, fd, chunk, &sent));
    late = MonotonicNow() > deadline + kLate;
  }
  return SendAll(fd, absl::string_view(&kFloodEnd, 1), MonotonicNow() + kReceiving);
}

// recv(2), and when the kernel had the last of it: a receiver that waits for a processor finds a
// backlog, which it reads at the speed of memory. Source: socket(7), SO_TIMESTAMP.
ssize_t ReceiveStamped(int fd, char* bytes, size_t size, Instant* arrived) {
  iovec part{.iov_base = bytes, .iov_len = size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(timespec))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(fd, &message, 0);
  const int error_number = errno;
  const Instant now = MonotonicNow();
  absl::Duration waited;
  for (cmsghdr* header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr; header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec stamp{};
    std::memcpy(&stamp, CMSG_DATA(header), sizeof(stamp));
    waited = absl::Now() - absl::TimeFromTimespec(stamp);
  }
  // The kernel's time stamps use the wall clock, which may have been set meanwhile.
  const bool credible = waited >= absl::ZeroDuration() && waited < 2 * kReceiving;
  *arrived = std::max(*arrived, credible ? now - waited : now);
  errno = error_number;
  return got;
}

// bit/s of what comes until the flood's end, or until its time is over.
absl::StatusOr<double> ReceiveFlood(int fd, Instant deadline) {
  std::vector<char> buffer(kChunk);
  DDPRUN_RETURN_IF_ERROR(AwaitReady(fd, POLLIN, deadline));
  const Instant end = MonotonicNow() + kReceiving;
  Instant arrived;
  std::optional<FloodRate> rate;
  while (AwaitReady(fd, POLLIN, end).ok()) {
    // The first byte says when it began.
    const ssize_t got = ReceiveStamped(fd, buffer.data(), rate ? buffer.size() : 1, &arrived);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) break;
    if (!rate) rate.emplace(arrived);
    rate->Add(arrived, static_cast<size_t>(got));
    if (buffer[static_cast<size_t>(got) - 1] == kFloodEnd) break;
  }
  if (!rate) return absl::UnavailableError("nothing came");
  return rate->BitsPerSecond();
}

void TuneTransfer(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsent, sizeof(kUnsent));
  setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on));
  // Drop unsent bytes at close(2), instead of sending them for seconds.
  const linger none{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

int SocketError(int fd) {
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

// The first of a few attempts that is answered.
absl::StatusOr<Fd> ConnectPatiently(const SocketAddress& peer, int family) {
  std::vector<Fd> attempts;
  absl::Status why = absl::DeadlineExceededError("no answer");
  for (int i = 0; i < kAttempts; ++i) {
    Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return ErrnoStatus(errno, "socket");
    if (connect(fd.get(), peer.get(), peer.size) != 0 && errno != EINPROGRESS) {
      return ErrnoStatus(errno, "connect");
    }
    attempts.push_back(std::move(fd));
    const Instant next = MonotonicNow() + kAttempt;
    std::vector<pollfd> waiting;
    waiting.reserve(attempts.size());
    for (const Fd& each : attempts) {
      waiting.push_back({.fd = each.get(), .events = POLLOUT, .revents = 0});
    }
    const int left = static_cast<int>(absl::ToInt64Milliseconds(next - MonotonicNow()));
    if (poll(waiting.data(), waiting.size(), std::max(left, 1)) <= 0) continue;
    for (size_t at = 0; at < waiting.size(); ++at) {
      if (waiting[at].revents == 0) continue;
      const int error = SocketError(waiting[at].fd);
      if (error == 0) return std::move(attempts[at]);
      why = ErrnoStatus(error, "connect");
      return why;
    }
  }
  return why;
}

// nullopt: no connection of a network check.
std::optional<TransferKey> ReadKey(absl::string_view bytes) {
  TransferKey key;
  if (bytes.size() != KeyBytes(key).size()) return std::nullopt;
  std::memcpy(&key.token, bytes.data() + 4, sizeof(key.token));
  std::memcpy(&key.round, bytes.data() + 4 + sizeof(key.token), sizeof(key.round));
  if (bytes != KeyBytes(key)) return std::nullopt;
  return key;
}

absl::Status Connected(int fd, const TransferKey& key, PeerMeasurement* measurement) {
  TuneTransfer(fd);
  const Instant deadline = MonotonicNow() + kLateness;
  DDPRUN_RETURN_IF_ERROR(SendAll(fd, KeyBytes(key), deadline));
  DDPRUN_RETURN_IF_ERROR(ReceiveAll(fd, 1, deadline).status());
  DDPRUN_RETURN_IF_ERROR(SendFlood(fd));
  DDPRUN_ASSIGN_OR_RETURN(measurement->rate, ReceiveFlood(fd, MonotonicNow() + 2 * kReceiving));
  return absl::OkStatus();
}

}  // namespace

// Errors leave the measurement without a rate, which says it all.
void TransferFrom(const SocketAddress& peer, int family, const TransferKey& key,
                  PeerMeasurement* measurement) {
  const absl::StatusOr<Fd> fd = ConnectPatiently(peer, family);
  measurement->connected = fd.ok();
  measurement->refused = !fd.ok();
  if (fd.ok()) Connected(fd->get(), key, measurement).IgnoreError();
}

absl::StatusOr<Fd> TransferServer::AcceptFor(const TransferKey& key) {
  constexpr size_t kEarlyMax = 64;
  const Instant deadline = MonotonicNow() + kLateness;
  while (true) {
    if (const auto found = early_.find(key); found != early_.end()) {
      Fd fd = std::move(found->second);
      early_.erase(found);
      return fd;
    }
    DDPRUN_RETURN_IF_ERROR(AwaitReady(listener_.socket.get(), POLLIN, deadline));
    Fd fd(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
      return ErrnoStatus(errno, "accept");
    }
    // Attempts that were given up send nothing, other programs something else.
    const absl::StatusOr<std::string> said =
        ReceiveAll(fd.get(), KeyBytes(key).size(), MonotonicNow() + kAttempt);
    if (!said.ok()) continue;
    const std::optional<TransferKey> whose = ReadKey(*said);
    if (whose.has_value() && *whose >= key && early_.size() < kEarlyMax) {
      early_[*whose] = std::move(fd);
    }
  }
}

void TransferServer::TransferTo(const TransferKey& key, PeerMeasurement* measurement) {
  const absl::StatusOr<Fd> fd = AcceptFor(key);
  if (!fd.ok()) return;
  TuneTransfer(fd->get());
  // "!" starts the other end. Bytes sent before this end reads would wait in a buffer and then
  // arrive at the speed of memory.
  if (!SendAll(fd->get(), "!", MonotonicNow() + kReceiving).ok()) return;
  const absl::StatusOr<double> rate = ReceiveFlood(fd->get(), MonotonicNow() + kReceiving);
  if (!rate.ok()) return;
  measurement->rate = *rate;
  if (!SendFlood(fd->get()).ok()) return;
  // The peer closes when it has had enough; before, an own close would throw away what it counts.
  AwaitReady(fd->get(), POLLIN, MonotonicNow() + kReceiving + kSending).IgnoreError();
}

}  // namespace ddprun::launcher
