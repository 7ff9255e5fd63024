#include "rendezvous/server/front_door.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/client/heartbeat_path.h"
#include "rendezvous/wire/grpc_listener.h"
#include "tests/server/rendezvous_fixture.h"

// Strangers at the service's door: they are bounded, members get in and stay.
namespace ddprun::rendezvous {
namespace {

using ::testing::IsEmpty;

// What a client of HTTP/2 says first: the preface, and settings that set nothing.
constexpr absl::string_view kPreface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
constexpr DoorBounds kUnbounded = {.strangers = 1U << 20, .per_address = 1U << 20};

sockaddr_in Loopback(const char* address, int port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<in_port_t>(port));
  inet_pton(AF_INET, address, &name.sin_addr);
  return name;
}

// Without waiting for it; 0, or an errno.
int Connect(int fd, int port, const char* from = "127.0.0.1") {
  const sockaddr_in own = Loopback(from, 0);
  const sockaddr_in name = Loopback("127.0.0.1", port);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0) return errno;
  const int result = connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name));
  return result == 0 || errno == EINPROGRESS ? 0 : errno;
}

// A connection that says what it likes.
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

// Connections of strangers who say nothing, from a process with descriptors of its own.
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

  // All have come, as far as the service lets them.
  bool here() const { return here_; }
  void Go() {
    if (child_ < 0) return;
    watch_.reset();
    life_.second.Reset();
    waitpid(std::exchange(child_, -1), nullptr, 0);
  }

 private:
  // Nothing but system calls: the test has threads.
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

// Of this process, for a while.
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

// As far as this machine lets one process go.
int ManyStrangers() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(10'000, limit.rlim_max - 128));
}

class FrontDoorTest : public RendezvousFixture {
 protected:
  void ServeWith(const DoorBounds& bounds, const std::string& listen = "127.0.0.1:0") {
    ServerOptions options;
    options.listen = listen;
    options.door = bounds;
    Serve(std::move(options));
  }
  std::unique_ptr<RawStream> JoinOverTcp(const std::string& host = "127.0.0.1") {
    auto agent = std::make_unique<RawStream>(loop_.get(),
                                             MakeChannel(absl::StrCat(host, ":", server_->port())));
    agent->Send(SampleJoin("job7", "a"));
    return agent;
  }
  // Joins again and again, as agents do.
  ::testing::AssertionResult AMemberGetsIn() {
    const Instant began = loop_->Now();
    while (loop_->Now() - began < absl::Seconds(20) * Slow()) {
      const auto agent = JoinOverTcp();
      const auto joined = [&] { return agent->Last(&v1::ServiceMessage::has_welcome) != nullptr; };
      EXPECT_TRUE(Until([&] { return joined() || agent->done(); }));
      if (joined()) return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << "no Welcome";
  }
  uint64_t Refused(const std::string& kind) const {
    const auto found = server_->refusals().find(kind);
    return found == server_->refusals().end() ? 0 : found->second;
  }
};

TEST_F(FrontDoorTest, ACrowdOfStrangersKeepsNoMemberOut) {
  const DescriptorsAtMost few(256);
  Serve();
  const Crowd crowd(loop_.get(), server_->port(), ManyStrangers(), "127.0.0.2");
  ASSERT_TRUE(Until([&] { return crowd.here(); }));
  EXPECT_TRUE(AMemberGetsIn());
  EXPECT_GT(Refused("connection_turned_away") + Refused("connection_evicted"), 0U);
}

TEST_F(FrontDoorTest, NorDoesACrowdFromItsOwnAddress) {
  const DescriptorsAtMost few(256);
  Serve();
  const Crowd crowd(loop_.get(), server_->port(), 1000, "127.0.0.1");
  ASSERT_TRUE(Until([&] { return crowd.here(); }));
  EXPECT_TRUE(AMemberGetsIn());
}

TEST_F(FrontDoorTest, TwinWithoutBoundsTheNextOneIsNotServed) {
  const DescriptorsAtMost few(256);
  Stranger late(loop_.get());
  ServeWith(kUnbounded);
  const Crowd crowd(loop_.get(), server_->port(), 1000, "127.0.0.2");
  ASSERT_TRUE(Until([&] { return crowd.here(); }));
  ASSERT_EQ(late.Come(server_->port()), 0);
  EXPECT_FALSE(LoopUntil(
      loop_.get(), [&] { return late.served(); }, absl::Seconds(3)));
}

TEST_F(FrontDoorTest, ConnectionsAreTakenAgainOnceThereAreDescriptors) {
  DescriptorsAtMost few(128);
  Stranger late(loop_.get());
  const std::string path = absl::StrCat(::testing::TempDir(), "/front_door.", getpid());
  events_ = *EventLog::Open(path, "service");
  ServeWith(kUnbounded);
  Crowd crowd(loop_.get(), server_->port(), 300, "127.0.0.2");
  // One is ended for each descriptor that is missing, as soon as one is a second old.
  ASSERT_TRUE(Until([&] { return Refused("connection_evicted") > 2; }));
  few.End();
  crowd.Go();
  ASSERT_EQ(late.Come(server_->port()), 0);
  EXPECT_TRUE(Until([&] { return late.served(); }));
  EXPECT_TRUE(AMemberGetsIn());
  server_.reset();
  events_ = EventLog();
  std::string text(1U << 16, '\0');
  const Fd log(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, read(log.get(), text.data(), text.size()))));
  unlink(path.c_str());
  const size_t first = text.find("\"event\":\"no_descriptor\"");
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("\"event\":\"no_descriptor\"", first + 1), std::string::npos)
      << "said once a minute at most: " << text;
}

// Why the service accepts itself. One that fails says that a later gRPC needs no door of ours.
TEST_F(FrontDoorTest, TwinAListenerOfGrpcIsGoneForGood) {
  v1::Rendezvous::Service service;
  const auto listener = StartGrpcListener("127.0.0.1:0", &service);
  ASSERT_TRUE(listener.ok()) << listener.status();
  Stranger first(loop_.get());
  Stranger late(loop_.get());
  DescriptorsAtMost none(3);
  ASSERT_EQ(first.Come(listener->port), 0);
  EXPECT_FALSE(LoopUntil(
      loop_.get(), [&] { return first.served(); }, absl::Seconds(1)));
  none.End();
  ASSERT_EQ(late.Come(listener->port), 0);
  EXPECT_FALSE(LoopUntil(
      loop_.get(), [&] { return first.served() || late.served(); }, absl::Seconds(2)));
}

TEST_F(FrontDoorTest, OursIsNot) {
  Serve();
  Stranger first(loop_.get());
  DescriptorsAtMost none(3);
  ASSERT_EQ(first.Come(server_->port()), 0);
  EXPECT_FALSE(LoopUntil(
      loop_.get(), [&] { return first.served(); }, absl::Seconds(1)));
  none.End();
  EXPECT_TRUE(Until([&] { return first.served(); }));
}

TEST_F(FrontDoorTest, AMemberTakesNoPlaceAndIsNotEnded) {
  std::vector<std::pair<std::string, std::string>> cases = {{"127.0.0.1:0", "127.0.0.1"},
                                                            {"0.0.0.0:0", "127.0.0.1"}};
  if (CheckListenable("[::1]:0").ok()) {
    cases.emplace_back("[::1]:0", "[::1]");
    cases.emplace_back("[::]:0", "[::1]");
  }
  for (const auto& [listen, host] : cases) {
    ServeWith({.strangers = 1, .per_address = 1}, listen);
    const auto agent = JoinOverTcp(host);
    ASSERT_TRUE(UntilAssigned(*agent)) << listen;
    if (host == "127.0.0.1") {
      Stranger stranger(loop_.get());
      ASSERT_EQ(stranger.Come(server_->port()), 0);
      EXPECT_TRUE(Until([&] { return stranger.served(); }));
      Stranger next(loop_.get());  // makes the one before it go, in a second; not the member
      ASSERT_EQ(next.Come(server_->port(), kPreface, "127.0.0.2"), 0);
      EXPECT_TRUE(Until([&] { return next.served() && stranger.ended(); }));
    } else {
      const auto other = JoinOverTcp(host);  // refused as a second one of its name, or welcome
      EXPECT_TRUE(
          Until([&] { return other->done() || agent->done() || !other->received().empty(); }));
    }
    EXPECT_EQ(Refused("connection_evicted"), host == "127.0.0.1" ? 1U : 0U) << listen;
    EXPECT_EQ(Refused("connection_turned_away"), 0U) << listen;
    server_.reset();
  }
}

TEST_F(FrontDoorTest, NorDoHeartbeatsAndWhoHasTheToken) {
  ServerOptions options;
  options.door = DoorBounds{.strangers = 1, .per_address = 1};
  options.token = "secret";
  Serve(std::move(options));
  AgentMessage join = SampleJoin("job7", "a");
  std::get<Join>(join.body).token = "secret";
  const auto agent = JoinAs(join);
  ASSERT_TRUE(UntilAssigned(*agent));
  AgentMessage header = join;
  header.term = server_->term();
  header.body =
      Heartbeat{.key = agent->Last(&v1::ServiceMessage::has_welcome)->welcome().heartbeat_key()};
  int probes = 0;
  const HeartbeatPath path(loop_.get(), ClientOptions{.target = target()}, header,
                           std::get<Heartbeat>(header.body).key, [&] { ++probes; });
  ASSERT_TRUE(Until([&] { return probes > 0; }));
  const auto stub = v1::Rendezvous::NewStub(MakeChannel(target()));
  for (const char* token : {"secret", "wrong"}) {
    grpc::ClientContext context;
    v1::StopJobRequest request;
    request.set_run_id("another job");
    request.set_token(token);
    v1::StopJobReply reply;
    bool done = false;
    stub->async()->StopJob(&context, &request, &reply, [&](const grpc::Status& /*status*/) {
      loop_->Post([&done] { done = true; });
    });
    ASSERT_TRUE(Until([&] { return done; })) << token;
    Stranger stranger(loop_.get());
    ASSERT_EQ(stranger.Come(server_->port()), 0);
    EXPECT_TRUE(Until([&] { return stranger.served(); })) << token;
  }
  EXPECT_THAT(Refused("connection_evicted") + Refused("connection_turned_away"), 0U);
}

TEST_F(FrontDoorTest, WhoOnlyTricklesMakesRoom) {
  ServeWith({.strangers = 1, .per_address = 1});
  Stranger slow(loop_.get());
  ASSERT_EQ(slow.Come(server_->port(), kPreface.substr(0, 3)), 0);
  Timer trickle(loop_.get(), [&] { slow.Say(kPreface.substr(3, 1)); });
  trickle.Arm(loop_->Now() + absl::Milliseconds(500));
  Stranger next(loop_.get());
  ASSERT_EQ(next.Come(server_->port(), kPreface, "127.0.0.2"), 0);
  EXPECT_TRUE(Until([&] { return next.served() && slow.ended(); }));
  EXPECT_EQ(Refused("connection_evicted"), 1U);
}

TEST_F(FrontDoorTest, TheEndOfTheServiceEndsAccepting) {
  Serve();
  const int port = server_->port();
  Stranger before(loop_.get());
  ASSERT_EQ(before.Come(port), 0);
  ASSERT_TRUE(Until([&] { return before.served(); }));
  server_.reset();
  EXPECT_TRUE(Until([&] { return before.ended(); }));
  EXPECT_EQ(Stranger(loop_.get()).Come(port), ECONNREFUSED);
}

TEST_F(FrontDoorTest, APortInUseIsNamed) {
  Serve();
  ServerOptions options;
  options.listen = target();
  const absl::Status status =
      RendezvousServer::Start(loop_.get(), &events_, std::move(options)).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::HasSubstr(absl::StrCat("cannot listen on ", target(),
                                        ": Address already in use (errno 98, EADDRINUSE)")));
}

// The door alone, before a gRPC without methods.
class GuestsTest : public ::testing::Test {
 protected:
  GuestsTest() {
    TcpListener listener = *ListenTcp("127.0.0.1:0");
    port_ = listener.port;
    FedGrpcServer fed =
        *StartFedGrpcServer(&service_, {.connection_idle = absl::Milliseconds(300)});
    grpc_ = std::move(fed.server);
    door_ = std::make_unique<FrontDoor>(loop_.get(), &events_, &refusals_, std::move(listener),
                                        std::move(fed.acceptor), kUnbounded);
  }
  ~GuestsTest() override {
    door_.reset();
    grpc_->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));
  }
  bool UntilAlone() {
    return LoopUntil(loop_.get(), [this] { return door_->strangers() == 0; });
  }

  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  EventLog events_;
  Refusals refusals_{&events_};
  v1::Rendezvous::Service service_;
  std::unique_ptr<grpc::Server> grpc_;
  std::unique_ptr<FrontDoor> door_;
  int port_ = 0;
};

TEST_F(GuestsTest, WhoGoesIsForgotten) {
  auto stranger = std::make_unique<Stranger>(loop_.get());
  ASSERT_EQ(stranger->Come(port_), 0);
  ASSERT_TRUE(LoopUntil(loop_.get(), [&] { return stranger->served(); }));
  EXPECT_EQ(door_->strangers(), 1U);
  stranger.reset();
  EXPECT_TRUE(UntilAlone());
}

TEST_F(GuestsTest, WhomGrpcEndsIsForgotten) {
  Stranger browser(loop_.get());
  ASSERT_EQ(browser.Come(port_, "GET / HTTP/1.1\r\nHost: there\r\n\r\n..............."), 0);
  ASSERT_TRUE(LoopUntil(loop_.get(), [&] { return browser.ended(); }));
  EXPECT_TRUE(UntilAlone());
}

TEST_F(GuestsTest, WhoAsksNothingIsEndedByItsAge) {
  Stranger idle(loop_.get());
  ASSERT_EQ(idle.Come(port_), 0);
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return idle.served() && idle.ended(); }));
  EXPECT_TRUE(UntilAlone());
  EXPECT_THAT(refusals_.counts(), IsEmpty()) << "not by the door";
}

TEST(Peer, NamesAreThoseOfSockets) {
  for (const char* peer : {"ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:80", "ipv6:%5Bfe80::1%5D:1"}) {
    const auto address = ParsePeer(peer);
    ASSERT_TRUE(address.has_value()) << peer;
    EXPECT_EQ(PeerText(*address), peer);
  }
  EXPECT_EQ(ParsePeer("ipv6:%5B::ffff:10.0.0.1%5D:7"), ParsePeer("ipv4:10.0.0.1:7"));
  EXPECT_EQ(ParsePeer("ipv6:%5Bfe80::1%252%5D:1"), ParsePeer("ipv6:[fe80::1]:1"));
  for (const char* peer : {"", "inproc", "unix:/x", "ipv4:1.2.3.4", "ipv4:1.2.3.4:65536",
                           "ipv6:1.2.3.4:1", "ipv4:%5B::1%5D:1"}) {
    EXPECT_EQ(ParsePeer(peer), std::nullopt) << peer;
  }
  EXPECT_EQ(AddressGroup(*ParsePeer("ipv6:[2001:db8::1]:1")),
            AddressGroup(*ParsePeer("ipv6:[2001:db8::2:3]:4")));
  EXPECT_NE(AddressGroup(*ParsePeer("ipv6:[2001:db8::1]:1")),
            AddressGroup(*ParsePeer("ipv6:[2001:db8:0:1::1]:1")));
  EXPECT_NE(AddressGroup(*ParsePeer("ipv4:10.0.0.1:1")),
            AddressGroup(*ParsePeer("ipv4:10.0.0.2:1")));
}

}  // namespace
}  // namespace ddprun::rendezvous
