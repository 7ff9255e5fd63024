#include "rendezvous/wire/grpc_settings.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/support/client_callback.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "tests/support/loop_until.h"
#include "tests/support/raw_stream.h"
#include "tests/support/slow.h"

// The defaults of gRPC that are changed, each with a negative control: what gRPC does by itself. If
// a negative control fails, this version of gRPC doesn't need the setting any more.
namespace ddprun::rendezvous {
namespace {

std::atomic<int> lookups = 0;
std::atomic<int> watched_port = 0;
std::atomic<size_t> most_read = 0;  // what connections of that port had ready for their next bytes

// Says yes to everything.
class Service final : public v1::Rendezvous::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext* /*context*/, const v1::GetStatusRequest* request,
                         v1::GetStatusReply* reply) override {
    if (request->run_id() == "large reply") reply->set_release(std::string(8U << 20, 'x'));
    return grpc::Status::OK;
  }
  // Lasts until the client closes its side.
  grpc::Status Attend(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<v1::ServiceMessage, v1::AgentMessage>* stream) override {
    stream->SendInitialMetadata();
    v1::AgentMessage message;
    while (stream->Read(&message)) {
    }
    return grpc::Status::OK;
  }
};

struct Listener {
  Service service;
  std::unique_ptr<grpc::Server> server;
  int port = 0;

  ~Listener() {
    if (server != nullptr) server->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));  // cuts streams off
  }
};

std::unique_ptr<Listener> Serve(bool our_settings, int port = 0, const GrpcLimits& limits = {}) {
  auto listener = std::make_unique<Listener>();
  grpc::ServerBuilder builder;
  if (our_settings) ApplyServerSettings(&builder, limits);
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), grpc::InsecureServerCredentials(),
                           &listener->port);
  builder.RegisterService(&listener->service);
  listener->server = builder.BuildAndStart();
  return listener;
}

std::shared_ptr<grpc::Channel> Connect(const std::string& target, bool our_settings) {
  if (our_settings) return MakeChannel(target);
  return grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
}

gpr_timespec In(absl::Duration time) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_millis(absl::ToInt64Milliseconds(time), GPR_TIMESPAN));
}

struct Options {
  absl::Duration timeout = absl::Seconds(5) * Slow();
  bool wait_for_ready = false;
  std::string run_id;
  bool compressed = false;
};

grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const Options& options = {}) {
  grpc::ClientContext context;
  context.set_deadline(In(options.timeout));
  context.set_wait_for_ready(options.wait_for_ready);
  if (options.compressed) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::GetStatusRequest request;
  request.set_run_id(options.run_id);
  v1::GetStatusReply reply;
  return v1::Rendezvous::NewStub(channel)->GetStatus(&context, request, &reply);
}

TEST(GrpcSettings, TwoServersDoNotShareAPort) {
  const auto first = Serve(true);
  EXPECT_EQ(Serve(false, first->port)->server, nullptr);
  EXPECT_EQ(Serve(true, first->port)->server, nullptr);
}
TEST(GrpcSettings, TwinTwoServersShareAPort) {
  const auto first = Serve(false);
  EXPECT_NE(Serve(false, first->port)->server, nullptr);
}

class ProxyTest : public ::testing::Test {
 protected:
  ProxyTest() {
    // A port on which nobody listens.
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("grpc_proxy", "http://127.0.0.1:1", 1);
    unsetenv("no_proxy");
    unsetenv("no_grpc_proxy");
  }
  ~ProxyTest() override {
    unsetenv("http_proxy");
    unsetenv("grpc_proxy");
  }
  const std::unique_ptr<Listener> listener_ = Serve(true);
};

TEST_F(ProxyTest, AProxyIsIgnored) {
  EXPECT_TRUE(Call(Connect(absl::StrCat("127.0.0.1:", listener_->port), true)).ok());
  EXPECT_TRUE(Call(Connect(absl::StrCat("localhost:", listener_->port), true)).ok());
}
TEST_F(ProxyTest, TwinAProxyIsAskedEvenForLoopback) {
  EXPECT_FALSE(Call(Connect(absl::StrCat("127.0.0.1:", listener_->port), false)).ok());
}

// How long after its server came up a channel that has failed for a while gets through.
absl::Duration ReconnectTime(bool our_settings) {
  const int port = Serve(true)->port;  // free again
  const auto channel = Connect(absl::StrCat("127.0.0.1:", port), our_settings);
  EXPECT_FALSE(Call(channel).ok());
  const auto listener = Serve(true, port);
  const Instant up = MonotonicNow();
  EXPECT_TRUE(Call(channel, {.wait_for_ready = true}).ok());
  return MonotonicNow() - up;
}
TEST(GrpcSettings, ReconnectsSoon) {
  constexpr absl::Duration kSoon = absl::Milliseconds(300);
  EXPECT_LT(Shortest(kSoon, [] { return ReconnectTime(true); }), kSoon);
}
TEST(GrpcSettings, TwinReconnectsAfterASecond) {
  EXPECT_GT(ReconnectTime(false), absl::Milliseconds(500));
}

// The kernel accepts, and nobody answers: a frozen process, or something else than gRPC.
absl::Duration TimeToGiveUpConnecting(bool our_settings) {
  const Fd mute(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(mute.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(listen(mute.get(), 4), 0);
  EXPECT_EQ(getsockname(mute.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const Instant begin = MonotonicNow();
  const grpc::Status status =
      Call(Connect(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)), our_settings),
           {.timeout = absl::Seconds(3)});
  EXPECT_FALSE(status.ok());
  return MonotonicNow() - begin;
}
TEST(GrpcSettings, GivesAMutePeerUpWithinTwoSeconds) {
  constexpr absl::Duration kSoon = absl::Seconds(2);
  EXPECT_LT(Shortest(kSoon, [] { return TimeToGiveUpConnecting(true); }), kSoon);
}
TEST(GrpcSettings, TwinWaitsTwentySeconds) {
  EXPECT_GT(TimeToGiveUpConnecting(false), absl::Milliseconds(2900));  // the call's own limit
}

TEST(GrpcSettings, NamesAreResolvedByTheSystem) {
  const auto listener = Serve(true);
  lookups = 0;
  EXPECT_TRUE(Call(Connect(absl::StrCat("localhost:", listener->port), true)).ok());
  EXPECT_GT(lookups, 0) << "getaddrinfo(3) was not asked";
  EXPECT_EQ(std::getenv("GRPC_DNS_RESOLVER"), nullptr) << "workers would inherit it";
}

// Each connection of a service has a read buffer, also while it waits: with thousands of
// connections 8 KiB each are much.
TEST(GrpcSettings, AConnectionReadsIntoLittle) {
  const auto listener = Serve(true);
  watched_port = listener->port;
  most_read = 0;
  EXPECT_TRUE(Call(Connect(absl::StrCat("127.0.0.1:", listener->port), true)).ok());
  EXPECT_GT(most_read, 0U) << "recvmsg(2) was not asked";
  EXPECT_LE(most_read, 2048U);
}
TEST(GrpcSettings, TwinGrpcReadsInto8KiB) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      absl::StrCat("GRPC_EXPERIMENTS=tcp_read_chunks timeout 10 ", self,
                   " --gtest_filter=GrpcSettings.AConnectionReadsIntoLittle > /dev/null 2>&1");
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1);
}

TEST(GrpcSettings, MessagesHaveABound) {
  const auto listener = Serve(true);
  const auto channel = Connect(absl::StrCat("127.0.0.1:", listener->port), true);
  const std::string large(5U << 20, 'x');
  // The sender's own bound, then the receiver's, against a sender without one.
  EXPECT_EQ(Call(channel, {.run_id = large}).error_code(), grpc::RESOURCE_EXHAUSTED);
  const auto careless = Connect(absl::StrCat("127.0.0.1:", listener->port), false);
  EXPECT_EQ(Call(careless, {.run_id = large}).error_code(), grpc::RESOURCE_EXHAUSTED);
  const auto careless_listener = Serve(false);
  const auto to_careless = Connect(absl::StrCat("127.0.0.1:", careless_listener->port), true);
  EXPECT_EQ(Call(to_careless, {.run_id = "large reply"}).error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Call(channel, {.run_id = std::string(3U << 20, 'x')}).ok());
}
TEST(GrpcSettings, TwinSendersHaveNoBound) {
  const auto listener = Serve(false);
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  const auto channel = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", listener->port),
                                                 grpc::InsecureChannelCredentials(), arguments);
  EXPECT_TRUE(Call(channel, {.run_id = "large reply"}).ok());
}

// Whether the server ends a connection that has said hello (RFC 9113, 3.4) and asks nothing within
// so many seconds.
bool EndsIdleConnection(int port, int64_t patience_s) {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  constexpr char kHello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";  // no settings
  EXPECT_TRUE(WriteAll(fd.get(), absl::string_view(kHello, sizeof(kHello) - 1)).ok());
  const timeval patience{.tv_sec = patience_s};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  char bytes[256];
  ssize_t n = 0;
  while ((n = recv(fd.get(), bytes, sizeof(bytes), 0)) > 0) {
  }
  return n == 0;
}

TEST(GrpcSettings, AConnectionThatAsksNothingIsEnded) {
  const auto listener = Serve(true, 0, {.connection_idle = absl::Milliseconds(100)});
  EXPECT_TRUE(EndsIdleConnection(listener->port, std::lround(3 * Slow())));
}
TEST(GrpcSettings, TwinItIsKept) {
  const auto listener = Serve(false);
  EXPECT_FALSE(EndsIdleConnection(listener->port, 3));
}

// 3 MiB of one letter are 3 KiB on the wire; gigabytes fit into 4 MiB.
TEST(GrpcSettings, CompressedMessagesAreRefused) {
  const auto listener = Serve(true);
  const grpc::Status status = Call(Connect(absl::StrCat("127.0.0.1:", listener->port), false),
                                   {.run_id = std::string(3U << 20, 'x'), .compressed = true});
  EXPECT_EQ(status.error_code(), grpc::UNIMPLEMENTED) << status.error_message();
}
TEST(GrpcSettings, TwinCompressedMessagesAreTaken) {
  const auto listener = Serve(false);
  EXPECT_TRUE(Call(Connect(absl::StrCat("127.0.0.1:", listener->port), false),
                   {.run_id = std::string(3U << 20, 'x'), .compressed = true})
                  .ok());
}

// How long a new channel needs to a server that came up after another channel had failed there.
absl::Duration SecondChannelTime(bool our_settings) {
  const int port = Serve(true)->port;
  const std::string target = absl::StrCat("127.0.0.1:", port);
  const auto failed = Connect(target, our_settings);
  EXPECT_FALSE(Call(failed).ok());
  const auto listener = Serve(true, port);
  const Instant begin = MonotonicNow();
  EXPECT_TRUE(Call(Connect(target, our_settings), {.wait_for_ready = true}).ok());
  return MonotonicNow() - begin;
}
TEST(GrpcSettings, ChannelsDoNotShareABackOff) {
  constexpr absl::Duration kSoon = absl::Milliseconds(90);
  EXPECT_LT(Shortest(kSoon, [] { return SecondChannelTime(true); }), kSoon);
}
TEST(GrpcSettings, TwinChannelsShareABackOff) {
  EXPECT_GT(SecondChannelTime(false), absl::Milliseconds(500));
}

// Between a client and a server; can stop passing bytes on, as a network does that loses them all.
class Relay {
 public:
  explicit Relay(int server_port) : server_port_(server_port) {
    listener_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = Loopback(0);
    socklen_t length = sizeof(address);
    DDPRUN_CHECK(
        bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
            listen(listener_.get(), 4) == 0 &&
            getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
        "no listener");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~Relay() {
    stop_.second.Reset();
    thread_.join();
  }
  int port() const { return port_; }
  void Cut() { cut_ = true; }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }
  void Run() {
    std::vector<std::pair<Fd, Fd>> pairs;
    for (;;) {
      std::vector<pollfd> polls = {{stop_.first.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const auto& [client, server] : pairs) {
        polls.push_back({client.get(), POLLIN, 0});
        polls.push_back({server.get(), POLLIN, 0});
      }
      poll(polls.data(), polls.size(), -1);
      if (polls[0].revents != 0) return;
      for (size_t i = 2; i < polls.size(); ++i) {
        if (polls[i].revents != 0) Pass(polls[i].fd, polls[i ^ 1].fd);
      }
      if (polls[1].revents != 0) {
        Fd client(accept(listener_.get(), nullptr, nullptr));
        Fd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const sockaddr_in address = Loopback(server_port_);
        if (connect(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
            0) {
          pairs.emplace_back(std::move(client), std::move(server));
        }
      }
    }
  }
  void Pass(int from, int to) const {
    char bytes[4096];
    const ssize_t n = recv(from, bytes, sizeof(bytes), 0);
    if (n <= 0) {
      shutdown(to, SHUT_WR);
      shutdown(from, SHUT_RD);
      return;
    }
    if (!cut_) send(to, bytes, static_cast<size_t>(n), MSG_NOSIGNAL);
  }

  const int server_port_;
  Fd listener_;
  FdPair stop_ = *MakePipe();
  std::atomic<bool> cut_ = false;
  int port_ = 0;
  std::thread thread_;
};

// One wait for four idle streams: our client notices a service that is cut off; its pings are
// welcome at our server, and refused by one with gRPC's limits.
TEST(GrpcSettings, KeepaliveAndItsTwins) {
  const auto loop = *EventLoop::Create();
  const auto ours = Serve(true);
  const auto defaults = Serve(false);
  Relay relay(ours->port);
  const auto open = [&](int port, bool our_settings) {
    return std::make_unique<RawStream>(loop.get(),
                                       Connect(absl::StrCat("127.0.0.1:", port), our_settings));
  };
  const auto healthy = open(ours->port, true);
  const auto pinging = open(defaults->port, true);
  const auto cut = open(relay.port(), true);
  const auto unaware = open(relay.port(), false);
  ASSERT_TRUE(LoopUntil(loop.get(), [&] {
    return healthy->open() && pinging->open() && cut->open() && unaware->open();
  }));
  relay.Cut();
  const Instant begin = loop->Now();
  ASSERT_TRUE(LoopUntil(
      loop.get(), [&] { return cut->done(); }, absl::Seconds(30) * Slow()));
  EXPECT_LT(loop->Now() - begin,
            kClientKeepaliveTime + kClientKeepaliveTimeout + absl::Seconds(2) * Slow());
  EXPECT_TRUE(absl::IsUnavailable(cut->status())) << cut->status();
  ASSERT_TRUE(LoopUntil(
      loop.get(), [&] { return pinging->done(); }, absl::Seconds(60) * Slow()));
  EXPECT_THAT(std::string(pinging->status().message()), ::testing::HasSubstr("ping"));
  EXPECT_FALSE(healthy->done());
  EXPECT_FALSE(unaware->done());
}

// A call that ends on a thread of gRPC, which so lets the last reference to the channel go.
class LastCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  LastCall(const std::shared_ptr<grpc::Channel>& channel, std::promise<void>* gone)
      : stub_(channel), gone_(gone) {
    stub_.PrepareBidiStreamingCall(&context_, "/x/y", grpc::StubOptions(), this);
  }
  void OnDone(const grpc::Status& /*status*/) override {
    std::promise<void>* const gone = gone_;
    delete this;
    gone->set_value();
  }

 private:
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::promise<void>* const gone_;
};

void LetLastChannelsGo(bool our_settings) {
  for (int i = 0; i < 50; ++i) {
    std::promise<void> gone;
    (new LastCall(Connect("127.0.0.1:1", our_settings), &gone))->StartCall();
    gone.get_future().wait();
  }
}
// Run by the two below in processes of their own, where nothing else keeps gRPC's threads.
TEST(GrpcSettings, DISABLED_LastChannels) { LetLastChannelsGo(true); }
TEST(GrpcSettings, DISABLED_LastChannelsByDefault) { LetLastChannelsGo(false); }

// Whether one of up to 50 such processes dies.
bool OneDies(const std::string& test) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      absl::StrCat("timeout ", 10 * Slow(), " ", self,
                   " --gtest_also_run_disabled_tests --gtest_filter=GrpcSettings.DISABLED_", test,
                   " > /dev/null 2>&1");
  for (int i = 0; i < 50; ++i) {
    if (std::system(command.c_str()) != 0) return true;
  }
  return false;
}
TEST(GrpcSettings, AThreadOfGrpcMayLetTheLastChannelGo) { EXPECT_FALSE(OneDies("LastChannels")); }
TEST(GrpcSettings, TwinAThreadOfGrpcJoinsItself) { EXPECT_TRUE(OneDies("LastChannelsByDefault")); }

}  // namespace
}  // namespace ddprun::rendezvous

// Overrides the C library's function, to count the lookups.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** result) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  ++ddprun::rendezvous::lookups;
  return real(node, service, hints, result);
}

// The same, to see how much is asked for.
extern "C" ssize_t recvmsg(int fd, msghdr* message, int flags) {
  using Function = ssize_t (*)(int, msghdr*, int);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "recvmsg"));
  sockaddr_in6 address{};  // gRPC's sockets speak both
  socklen_t length = sizeof(address);
  size_t bytes = 0;
  for (size_t i = 0; i < message->msg_iovlen; ++i) bytes += message->msg_iov[i].iov_len;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
      address.sin6_family == AF_INET6 &&
      ntohs(address.sin6_port) == ddprun::rendezvous::watched_port) {
    size_t most = ddprun::rendezvous::most_read;
    while (bytes > most && !ddprun::rendezvous::most_read.compare_exchange_weak(most, bytes)) {
    }
  }
  return real(fd, message, flags);
}
