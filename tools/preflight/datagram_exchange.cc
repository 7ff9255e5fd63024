#include "tools/preflight/datagram_exchange.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/errno_status.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

constexpr uint64_t kProbeMagic = 0x6e72'7064'6470;  // "pddprn"
constexpr size_t kMagicBytes = 7;

void AppendProbeNumber(uint64_t number, size_t size, std::string* bytes) {
  for (size_t i = 0; i < size; ++i) *bytes += static_cast<char>(number >> (8 * i) & 0xff);
}

uint64_t TakeProbeNumber(size_t size, absl::string_view* bytes) {
  uint64_t number = 0;
  for (size_t i = size; i > 0; --i) {
    number = number << 8 | static_cast<unsigned char>((*bytes)[i - 1]);
  }
  bytes->remove_prefix(size);
  return number;
}

}  // namespace

std::string EncodeProbe(const ProbeDatagram& probe) {
  std::string bytes;
  bytes.reserve(kProbeBytes);
  AppendProbeNumber(kProbeMagic, kMagicBytes, &bytes);
  AppendProbeNumber(static_cast<uint8_t>(probe.kind), 1, &bytes);
  AppendProbeNumber(probe.from, 4, &bytes);
  AppendProbeNumber(probe.pass, 4, &bytes);
  AppendProbeNumber(probe.token, 8, &bytes);
  AppendProbeNumber(static_cast<uint64_t>(probe.sent_ns), 8, &bytes);
  return bytes;
}

std::optional<ProbeDatagram> DecodeProbe(absl::string_view bytes) {
  if (bytes.size() != kProbeBytes) return std::nullopt;
  if (TakeProbeNumber(kMagicBytes, &bytes) != kProbeMagic) return std::nullopt;
  const uint64_t kind = TakeProbeNumber(1, &bytes);
  if (kind < static_cast<uint64_t>(ProbeDatagram::Kind::kData) ||
      kind > static_cast<uint64_t>(ProbeDatagram::Kind::kHere)) {
    return std::nullopt;
  }
  ProbeDatagram probe{.kind = static_cast<ProbeDatagram::Kind>(kind)};
  probe.from = static_cast<uint32_t>(TakeProbeNumber(4, &bytes));
  probe.pass = static_cast<uint32_t>(TakeProbeNumber(4, &bytes));
  probe.token = TakeProbeNumber(8, &bytes);
  probe.sent_ns = static_cast<int64_t>(TakeProbeNumber(8, &bytes));
  return probe;
}

namespace {

constexpr int kReceiveBuffer = 4 << 20;  // as much of it as the kernel gives
constexpr uint32_t kBursts = 40;
constexpr absl::Duration kBetweenBursts = absl::Milliseconds(8);

int64_t NowNs() { return MonotonicNow().nanoseconds(); }

}  // namespace

absl::StatusOr<std::unique_ptr<DatagramExchange>> DatagramExchange::Open(uint16_t port) {
  absl::StatusOr<BoundSocket> bound = BindAny(SOCK_DGRAM, port);
  if (!bound.ok() && port != 0) bound = BindAny(SOCK_DGRAM, 0);
  DDPRUN_RETURN_IF_ERROR(bound.status());
  const int fd = bound->socket.get();
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kReceiveBuffer, sizeof(kReceiveBuffer));
  // How many the socket itself had no room for: they are not the network's loss (socket(7)).
  if (setsockopt(fd, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof(on)) != 0) {
    return ErrnoStatus(errno, "SO_RXQ_OVFL");
  }
  Fd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return ErrnoStatus(errno, "eventfd");
  return std::unique_ptr<DatagramExchange>(
      new DatagramExchange(*std::move(bound), std::move(stop)));
}

DatagramExchange::DatagramExchange(BoundSocket bound, Fd stop)
    : bound_(std::move(bound)), stop_(std::move(stop)), thread_([this] { Receive(); }) {}

DatagramExchange::~DatagramExchange() {
  const uint64_t one = 1;
  // Can't fail: the counter is far from its end.
  [[maybe_unused]] const ssize_t written = write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void DatagramExchange::Begin(uint32_t node, uint64_t token, std::vector<SocketAddress> peers) {
  const std::lock_guard lock(mutex_);
  node_ = node;
  token_ = token;
  peers_ = std::move(peers);
  passes_.clear();
}

void DatagramExchange::Send(uint32_t pass, const std::vector<uint32_t>& targets, uint32_t count) {
  std::vector<SocketAddress> peers;
  ProbeDatagram probe{.pass = pass};
  {
    const std::lock_guard lock(mutex_);
    peers = peers_;
    probe.from = node_;
    probe.token = token_;
  }
  const Instant began = MonotonicNow();
  for (uint32_t burst = 0; burst < kBursts; ++burst) {
    const uint32_t size = count * (burst + 1) / kBursts - count * burst / kBursts;
    for (const uint32_t target : targets) {
      if (target >= peers.size() || peers[target].size == 0) continue;
      for (uint32_t i = 0; i < size; ++i) {
        probe.kind = i == 0 ? ProbeDatagram::Kind::kPing : ProbeDatagram::Kind::kData;
        probe.sent_ns = NowNs();
        SendProbe(probe, peers[target]);
      }
    }
    // Only the time: nothing is written to stop_ before the end.
    AwaitReady(stop_.get(), POLLIN, began + kBetweenBursts * (burst + 1)).IgnoreError();
  }
}

void DatagramExchange::SendHere(uint32_t node, const SocketAddress& address) {
  SendProbe({.kind = ProbeDatagram::Kind::kHere, .from = node}, address);
}

// A datagram that can't be sent (no route, no buffer) is one that doesn't arrive.
void DatagramExchange::SendProbe(const ProbeDatagram& probe, const SocketAddress& address) const {
  const std::string bytes = EncodeProbe(probe);
  while (sendto(bound_.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL, address.get(),
                address.size) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return;
    if (!AwaitReady(bound_.socket.get(), POLLOUT, MonotonicNow() + kBetweenBursts).ok()) return;
  }
}

void DatagramExchange::Receive() {
  while (true) {
    pollfd ready[2] = {{.fd = bound_.socket.get(), .events = POLLIN, .revents = 0},
                       {.fd = stop_.get(), .events = POLLIN, .revents = 0}};
    if (poll(ready, 2, -1) < 0 && errno != EINTR) return;
    if (ready[1].revents != 0) return;
    while (ReceiveOne()) {
    }
  }
}

// False when there is none.
bool DatagramExchange::ReceiveOne() {
  char bytes[kProbeBytes + 1];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(uint32_t))];
  SocketAddress source;
  iovec part{.iov_base = bytes, .iov_len = sizeof(bytes)};
  msghdr message{};
  message.msg_name = &source.storage;
  message.msg_namelen = sizeof(source.storage);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(bound_.socket.get(), &message, MSG_DONTWAIT);
  // recvmsg(2) also reports an ICMP error for an earlier datagram; the next call receives again.
  if (size < 0) return errno != EAGAIN && errno != EWOULDBLOCK;
  source.size = message.msg_namelen;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SO_RXQ_OVFL) continue;
    const std::lock_guard lock(mutex_);
    std::memcpy(&overrun_, CMSG_DATA(each), sizeof(overrun_));
  }
  const auto probe = DecodeProbe(absl::string_view(bytes, static_cast<size_t>(size)));
  if (probe.has_value()) Take(*probe, source);
  return true;
}

void DatagramExchange::Take(const ProbeDatagram& probe, const SocketAddress& source) {
  constexpr uint32_t kHeardMax = 16384;
  constexpr uint32_t kPassesHeldMax = 64;  // a network check has fewer
  using Kind = ProbeDatagram::Kind;
  ProbeDatagram pong{.kind = Kind::kPong, .pass = probe.pass, .token = probe.token};
  {
    const std::lock_guard lock(mutex_);
    if (probe.kind == Kind::kHere) {
      if (probe.from < kHeardMax) heard_.insert(probe.from);
      return;
    }
    if (token_ == 0 || probe.token != token_ || probe.from >= peers_.size()) return;
    if (probe.pass >= kPassesHeldMax) return;
    std::vector<Seen>& seen = passes_[probe.pass];
    seen.resize(peers_.size());
    Seen& from = seen[probe.from];
    if (probe.kind == Kind::kPong) {
      from.round_trip_ns = std::min(from.round_trip_ns, NowNs() - probe.sent_ns);
      return;
    }
    ++from.arrived;
    if (probe.kind != Kind::kPing) return;
    pong.from = node_;
  }
  pong.sent_ns = probe.sent_ns;
  SendProbe(pong, source);
}

NodeMeasurements DatagramExchange::Measurements(uint32_t pass) {
  const std::lock_guard lock(mutex_);
  NodeMeasurements measurements{.overrun = overrun_ - overrun_told_};
  overrun_told_ = overrun_;
  const auto found = passes_.find(pass);
  if (found == passes_.end()) return measurements;
  for (uint32_t peer = 0; peer < found->second.size(); ++peer) {
    const Seen& seen = found->second[peer];
    PeerMeasurement measurement{.peer = peer, .arrived = seen.arrived};
    if (seen.round_trip_ns != INT64_MAX)
      measurement.round_trip = absl::Nanoseconds(seen.round_trip_ns);
    if (measurement.arrived > 0 || measurement.round_trip.has_value())
      measurements.peers.push_back(measurement);
  }
  passes_.erase(passes_.begin(), std::next(found));
  return measurements;
}

std::set<uint32_t> DatagramExchange::Heard() {
  const std::lock_guard lock(mutex_);
  return heard_;
}

}  // namespace ddprun::launcher
