#include "rendezvous/server/front_door.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/client/heartbeat_path.h"
#include "rendezvous/server/call_registry.h"
#include "rendezvous/wire/grpc_listener.h"
#include "tests/server/rendezvous_fixture.h"
#include "tests/support/strangers.h"

// Strangers at the service's door: they are bounded, members get in and stay.
namespace ddprun::rendezvous {
namespace {

using ::testing::IsEmpty;

constexpr absl::string_view kAttend = "/ddprun.rendezvous.v1.Rendezvous/Attend";
constexpr DoorBounds kUnbounded = {.strangers = 1U << 20, .per_address = 1U << 20};

// As many unauthenticated peers as this machine lets one process have.
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
  // For each missing descriptor one connection is ended, as soon as one is a second old.
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

// gRPC doesn't hold a client to the limit on streams before the client has confirmed its settings:
// on one connection, as many streams as there is room for kept every member out.
TEST_F(FrontDoorTest, WhoOpensMoreStreamsThanItMayIsTurnedOut) {
  Serve();
  Stranger flood(loop_.get());
  ASSERT_EQ(flood.Come(server_->port(), kPreface, "127.0.0.2"), 0);
  for (uint32_t i = 0; i < 1000; ++i) flood.Say(BeginCall(2 * i + 1, kAttend));
  EXPECT_TRUE(Until([&] { return flood.ended(); }));
  EXPECT_GE(Refused("connection_turned_out"), 1U) << "not for its silence";
  EXPECT_TRUE(AMemberGetsIn());
  Stranger again(loop_.get());
  ASSERT_EQ(again.Come(server_->port(), kPreface, "127.0.0.2"), 0);
  EXPECT_TRUE(Until([&] { return again.ended(); }));
  EXPECT_FALSE(again.served()) << "not for a while";
}

// The end of a stream that was refused is nothing that the loop knows of: it ended the service.
TEST_F(FrontDoorTest, NorDoesItHarmToOpenTooManyAndGo) {
  Serve();
  std::string calls;
  for (uint32_t i = 0; i < 100; ++i) calls += BeginCall(2 * i + 1, kAttend);
  for (int i = 0; i < 100; ++i) {
    Stranger hasty(loop_.get());
    ASSERT_EQ(hasty.Come(server_->port(), kPreface, absl::StrCat("127.0.1.", i + 1).c_str()), 0);
    hasty.Say(calls);
    if (i % 2 == 0) {
      ASSERT_TRUE(Until([&] { return hasty.served() || hasty.ended(); }));
    }
  }
  EXPECT_TRUE(AMemberGetsIn());
}

TEST_F(FrontDoorTest, TwinWhoOpensAsManyAsItMayStays) {
  Serve();
  Stranger stranger(loop_.get());
  ASSERT_EQ(stranger.Come(server_->port()), 0);
  for (uint32_t i = 0; i < kStrangersCallsMax; ++i) stranger.Say(BeginCall(2 * i + 1, kAttend));
  EXPECT_TRUE(AMemberGetsIn());
  EXPECT_FALSE(LoopUntil(
      loop_.get(), [&] { return stranger.ended(); }, absl::Seconds(1)));
  EXPECT_EQ(Refused("connection_turned_out"), 0U);
}

// Each stream has 10 s for its first message, and may be opened again and again; a connection has
// so few streams that all of them leave room for members.
TEST_F(FrontDoorTest, ManyStreamsFromOneAddressKeepNoMemberOut) {
  Serve();
  std::vector<std::unique_ptr<Stranger>> crowd;
  for (int i = 0; i < 60; ++i) {
    crowd.push_back(std::make_unique<Stranger>(loop_.get()));
    ASSERT_EQ(crowd.back()->Come(server_->port(), kPreface, "127.0.0.2"), 0);
    for (uint32_t stream = 0; stream < 256; ++stream) {
      crowd.back()->Say(BeginCall(2 * stream + 1, kAttend));
    }
  }
  EXPECT_TRUE(AMemberGetsIn());
  for (const auto& stranger : crowd) {
    EXPECT_TRUE(Until([&] { return stranger->ended(); }));
  }
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
  GuestsTest() { Serve({.bounds = kUnbounded}); }
  void Serve(FrontDoor::Options options) {
    End();
    TcpListener listener = *ListenTcp("127.0.0.1:0");
    port_ = listener.port;
    service_ = std::make_unique<v1::Rendezvous::Service>();
    FedGrpcServer fed =
        *StartFedGrpcServer(service_.get(), {.connection_idle = absl::Milliseconds(300)});
    grpc_ = std::move(fed.server);
    door_ = std::make_unique<FrontDoor>(loop_.get(), &events_, &refusals_, std::move(listener),
                                        std::move(fed.acceptor), std::move(options));
  }
  ~GuestsTest() override { End(); }
  void End() {
    door_.reset();
    if (grpc_ != nullptr) grpc_->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));
  }
  bool UntilAlone() {
    return LoopUntil(loop_.get(), [this] { return door_->strangers() == 0; });
  }

  const std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  EventLog events_;
  Refusals refusals_{&events_};
  std::unique_ptr<v1::Rendezvous::Service> service_;
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

// Before gRPC has it, nobody else looks at a connection's age.
TEST_F(GuestsTest, WhoSaysNothingIsEndedWithoutCostingGrpcAnything) {
  for (const bool wants_tls : {false, true}) {
    Serve(
        {.bounds = kUnbounded, .wants_tls = wants_tls, .silent_at_most = absl::Milliseconds(300)});
    Stranger silent(loop_.get());
    ASSERT_EQ(silent.Come(port_, ""), 0);
    const Instant came = loop_->Now();
    EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return silent.ended(); }));
    EXPECT_GE(loop_->Now() - came, absl::Milliseconds(250));
    EXPECT_FALSE(silent.served()) << "gRPC has sent its settings";
    EXPECT_TRUE(UntilAlone());
  }
}

TEST_F(GuestsTest, NotWhoSpokeWhileTheDoorWasHeldUp) {
  Serve({.bounds = kUnbounded, .silent_at_most = absl::Milliseconds(500)});
  Stranger shy(loop_.get());
  ASSERT_EQ(shy.Come(port_, ""), 0);
  ASSERT_TRUE(LoopUntil(loop_.get(), [this] { return door_->strangers() == 1; }));
  shy.Say(kPreface);
  const Instant free = loop_->Now() + absl::Milliseconds(600);
  while (loop_->Now() < free) {
  }
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return shy.served() || shy.ended(); }));
  EXPECT_TRUE(shy.served());
}

TEST_F(GuestsTest, SoIsWhoHasHeardThatItNeedsTlsAndStays) {
  Serve({.bounds = kUnbounded, .wants_tls = true, .silent_at_most = absl::Milliseconds(300)});
  Stranger plain(loop_.get());
  ASSERT_EQ(plain.Come(port_), 0);
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return plain.served() && plain.ended(); }));
  EXPECT_EQ(refusals_.counts().at("without_tls"), 1U);
  EXPECT_TRUE(UntilAlone()) << "it hasn't closed its side";
}

TEST_F(GuestsTest, TwinWithPatienceBothStay) {
  Serve({.bounds = kUnbounded, .wants_tls = true, .silent_at_most = absl::Hours(1)});
  Stranger silent(loop_.get());
  Stranger plain(loop_.get());
  ASSERT_EQ(silent.Come(port_, ""), 0);
  ASSERT_EQ(plain.Come(port_), 0);
  ASSERT_TRUE(LoopUntil(loop_.get(), [&] { return plain.served(); }));
  EXPECT_FALSE(LoopUntil(
      loop_.get(), [this] { return door_->strangers() < 2; }, absl::Seconds(1)));
}

TEST_F(GuestsTest, GrpcGetsInTimeWhatBeginsLikeTls) {
  Serve({.bounds = kUnbounded, .wants_tls = true, .silent_at_most = absl::Seconds(1)});
  Stranger shy(loop_.get());
  ASSERT_EQ(shy.Come(port_, ""), 0);
  shy.Say("\x16");
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return shy.ended(); })) << "by gRPC, which wants no TLS";
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

// A service whose port is the workers' MASTER_PORT, too.
class StoreAtTheDoorTest : public GuestsTest {
 protected:
  void ServeStore(bool wants_tls) {
    Serve({.bounds = kUnbounded,
           .wants_tls = wants_tls,
           .silent_at_most = absl::Milliseconds(300),
           .on_store = [this](Fd connection) { passed_.push_back(std::move(connection)); }});
  }
  std::vector<Fd> passed_;
};

TEST_F(StoreAtTheDoorTest, GetsItsClientsUnread) {
  for (const bool wants_tls : {false, true}) {
    ServeStore(wants_tls);
    const std::string request("\x00\xce\xf7\x85\x3c", 5);
    Stranger client(loop_.get());
    ASSERT_EQ(client.Come(port_, request), 0);
    ASSERT_TRUE(LoopUntil(loop_.get(), [&] { return passed_.size() == 1; }));
    char bytes[16] = {};
    EXPECT_EQ(recv(passed_[0].get(), bytes, sizeof(bytes), 0),
              static_cast<ssize_t>(request.size()));
    EXPECT_EQ(std::string(bytes, request.size()), request);
    EXPECT_TRUE(UntilAlone());
    passed_.clear();
    EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return client.ended(); }))
        << "it is the store's alone";
  }
}

TEST_F(StoreAtTheDoorTest, GetsWhoSaysNothingInTime) {
  ServeStore(/*wants_tls=*/false);
  Stranger silent(loop_.get());
  ASSERT_EQ(silent.Come(port_, ""), 0);
  ASSERT_TRUE(LoopUntil(loop_.get(), [&] { return passed_.size() == 1; }));
  EXPECT_FALSE(silent.ended());
  EXPECT_TRUE(UntilAlone());
}

TEST_F(StoreAtTheDoorTest, DoesNotGetWhatIsGrpcs) {
  ServeStore(/*wants_tls=*/false);
  Stranger agent(loop_.get());
  Stranger browser(loop_.get());
  Stranger noise(loop_.get());
  ASSERT_EQ(agent.Come(port_), 0);
  ASSERT_EQ(browser.Come(port_, "GET / HTTP/1.1\r\nHost: there\r\n\r\n..............."), 0);
  ASSERT_EQ(noise.Come(port_, std::string(64, '\xff')), 0);
  EXPECT_TRUE(
      LoopUntil(loop_.get(), [&] { return agent.served() && browser.ended() && noise.ended(); }));
  EXPECT_TRUE(passed_.empty());
}

}  // namespace
}  // namespace ddprun::rendezvous
