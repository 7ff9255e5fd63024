#include "tools/preflight/pair_transfer.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/instant.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/preflight/core/link_facts.h"
#include "tools/preflight/sockets.h"

namespace ddprun::launcher {
namespace {

using testing::Le;
using testing::Optional;

constexpr TransferKey kKey = {.token = 0x1234, .round = 7};
// Each try is good only where this thread itself was not held up.
constexpr int kTries = 50;

// A thread that can be made to wait, as one does for which no processor is free. One at a time.
class HeldThread {
 public:
  explicit HeldThread(std::function<void()> body) {
    EXPECT_EQ(pipe2(held_, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(released_, O_CLOEXEC), 0);
    struct sigaction wait {};
    wait.sa_handler = [](int) { Wait(); };
    sigaction(SIGUSR1, &wait, &before_);
    thread_ = std::thread(std::move(body));
  }

  ~HeldThread() {
    thread_.join();
    sigaction(SIGUSR1, &before_, nullptr);
    for (const int fd : {held_[0], held_[1], released_[0], released_[1]}) close(fd);
  }

  // Returns when it waits. Requires: it has not ended.
  void Hold() {
    pthread_kill(thread_.native_handle(), SIGUSR1);
    char byte = 0;
    EXPECT_EQ(read(held_[0], &byte, 1), 1);
  }

  void Release() const { EXPECT_EQ(write(released_[1], "r", 1), 1); }

 private:
  static void Wait() {
    char byte = 'h';
    if (write(held_[1], &byte, 1) != 1 || read(released_[0], &byte, 1) != 1) _exit(1);
  }

  static inline int held_[2];
  static inline int released_[2];
  struct sigaction before_ {};
  std::thread thread_;
};

int BytesAt(int fd, unsigned long request) {  // NOLINT(google-runtime-int): ioctl(2)'s
  int bytes = 0;
  EXPECT_EQ(ioctl(fd, request, &bytes), 0);
  return bytes;
}

uint16_t PortOf(int fd, int (*get)(int, sockaddr*, socklen_t*)) {
  SocketAddress address;
  address.size = sizeof(address.storage);
  auto* const raw = reinterpret_cast<sockaddr*>(&address.storage);
  if (get(fd, raw, &address.size) != 0) return 0;
  if (address.storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(raw)->sin6_port);
  }
  return address.storage.ss_family == AF_INET
             ? ntohs(reinterpret_cast<const sockaddr_in*>(raw)->sin_port)
             : uint16_t{0};
}

// This process' socket at the other end of `fd`.
int ServerEndOf(int fd) {
  constexpr int kFdsMax = 1024;
  for (int other = 0; other < kFdsMax; ++other) {
    if (other != fd && PortOf(other, getpeername) == PortOf(fd, getsockname) &&
        PortOf(other, getsockname) == PortOf(fd, getpeername)) {
      return other;
    }
  }
  ADD_FAILURE() << "no other end";
  return -1;
}

// A TransferServer in a thread that can be held up, and this thread as its peer.
class Pair {
 public:
  Pair() {
    absl::StatusOr<BoundSocket> listener = BindAny(SOCK_STREAM, 0);
    EXPECT_TRUE(listener.ok()) << listener.status();
    const int family = listener->family;
    server_ = std::make_unique<TransferServer>(*std::move(listener));
    thread_ = std::make_unique<HeldThread>([this] { server_->TransferTo(kKey, &measurement_); });
    peer_ = Fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int little = 64 << 10;  // of a flood that nobody reads
    setsockopt(peer_.get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof(little));
    const absl::StatusOr<SocketAddress> there = ParseAddress("127.0.0.1", server_->port(), family);
    EXPECT_TRUE(there.ok()) << there.status();
    EXPECT_EQ(connect(peer_.get(), there->get(), there->size), 0);
    std::string key = "ddpX";
    key.append(reinterpret_cast<const char*>(&kKey.token), sizeof(kKey.token));
    key.append(reinterpret_cast<const char*>(&kKey.round), sizeof(kKey.round));
    Send(key);
    EXPECT_EQ(Receive(), "!");
    other_end_ = ServerEndOf(peer_.get());
  }

  // All of it is at the other end, which may not have read it, when this returns.
  void Send(absl::string_view bytes) const {
    EXPECT_EQ(send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), bytes.size());
    while (BytesAt(peer_.get(), SIOCOUTQ) > 0) sched_yield();
  }

  void AwaitRead() const {
    while (BytesAt(other_end_, SIOCINQ) > 0) sched_yield();
  }

  // A byte; "": that was all.
  std::string Receive() const {
    char byte = 0;
    return std::string(&byte, recv(peer_.get(), &byte, 1, 0) == 1 ? 1 : 0);
  }

  // What the other end has sent, while it is held up. Returns it without its bytes 'x'.
  std::string Drain() const {
    std::string others;
    while (BytesAt(other_end_, SIOCOUTQ) > 0 || BytesAt(peer_.get(), SIOCINQ) > 0) {
      char bytes[4096];
      const ssize_t got = recv(peer_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      for (ssize_t i = 0; i < got; ++i) {
        if (bytes[i] != 'x') others += bytes[i];
      }
    }
    return others;
  }

  HeldThread& thread() { return *thread_; }

  // What it has measured; it has ended.
  std::optional<double> End() {
    peer_ = Fd();
    thread_.reset();
    return measurement_.rate;
  }

 private:
  PeerMeasurement measurement_;
  std::unique_ptr<TransferServer> server_;
  std::unique_ptr<HeldThread> thread_;
  Fd peer_;
  int other_end_ = -1;
};

void WaitUntil(Instant then) {
  while (MonotonicNow() < then) sched_yield();
}

constexpr int kFloodBytes = 32 << 10;
constexpr absl::Duration kFlood = absl::Milliseconds(100);

// The rate of a flood that took kFlood at least, to one who was held up when it began. (Not for all
// of it: the kernel joins what waits, and keeps one stamp for it, the last.)
std::optional<double> RateWhereTheReceiverWaits() {
  Pair pair;
  pair.thread().Hold();
  pair.Send("x");
  WaitUntil(MonotonicNow() + kFlood);
  pair.thread().Release();
  pair.AwaitRead();
  pair.Send(std::string(kFloodBytes - 2, 'x') + ".");
  return pair.End();
}

TEST(PairTransferTest, CountsFromWhenBytesCameNotFromWhenTheyWereRead) {
  // The kernel begins to stamp what comes some time after the first socket asked for it.
  const Fd asks(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ASSERT_EQ(setsockopt(asks.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)), 0);
  // From when the first byte was read, the flood takes less than a hundredth of that.
  const double rate_max = 8.0 * kFloodBytes / absl::ToDoubleSeconds(kFlood) * 1.01;
  std::optional<double> rate;
  for (int i = 0; i < kTries && rate.value_or(2 * rate_max) > rate_max; ++i) {
    rate = RateWhereTheReceiverWaits();
  }
  EXPECT_THAT(rate, Optional(Le(rate_max)));
}

// Whether a sender that was held up until its time was over sent more; nullopt: it was not, since
// this thread was held up, too.
std::optional<bool> SendsMoreWhereTheSenderWaits() {
  Pair pair;
  const Instant before = MonotonicNow();
  pair.Send("x.");
  EXPECT_EQ(pair.Receive(), "x");
  pair.thread().Hold();
  const bool in_time = MonotonicNow() < before + absl::Milliseconds(50);  // of 60
  WaitUntil(MonotonicNow() + absl::Milliseconds(90));                     // 80 is late
  const bool ended = !pair.Drain().empty();
  pair.thread().Release();
  const std::string next = pair.Receive();
  pair.End();
  if (!in_time || ended) return std::nullopt;
  return next == "x";
}

TEST(PairTransferTest, ASenderThatWaitedForAProcessorSendsForLonger) {
  std::optional<bool> more;
  for (int i = 0; i < kTries && !more.has_value(); ++i) more = SendsMoreWhereTheSenderWaits();
  ASSERT_TRUE(more.has_value());
  EXPECT_TRUE(*more);
}

}  // namespace
}  // namespace ddprun::launcher
