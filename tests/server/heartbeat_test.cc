// Heartbeats over connections of their own (R4): rendezvous/client/heartbeat_path.h and
// rendezvous/server/server_heartbeats.cc.
#include "rendezvous/client/heartbeat_path.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "rendezvous/client/rendezvous_client.h"
#include "rendezvous/wire/grpc_listener.h"
#include "tests/server/rendezvous_fixture.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;

const absl::Duration kLease = absl::Milliseconds(250) * Slow();

class HeartbeatTest : public RendezvousFixture {
 protected:
  HeartbeatTest() {
    Serve();
    join_ = SampleJoin("job7", "a");
    std::get<Join>(join_.body).job.lease = kLease;
    std::get<Join>(join_.body).job.lease_is_proof = true;
  }

  // An agent's stream that answers no probe itself.
  std::unique_ptr<RawStream> JoinMute() {
    auto stream = JoinAs(join_);
    EXPECT_TRUE(UntilAssigned(*stream));
    return stream;
  }

  static uint64_t KeyOf(const RawStream& stream) {
    return stream.Last(&v1::ServiceMessage::has_welcome)->welcome().heartbeat_key();
  }

  // The header of what a stream of heartbeats sends.
  AgentMessage Header(std::optional<uint64_t> key = std::nullopt) const {
    AgentMessage message = join_;
    message.term = server_->term();
    message.body = Renewal{.nonce = 1};
    if (key.has_value()) message.body = Heartbeat{.key = *key};
    return message;
  }

  AgentMessage join_;
};

TEST_F(HeartbeatTest, KeepANodeAliveWhoseStreamIsStuck) {
  const auto stream = JoinMute();
  int probes = 0;
  const HeartbeatPath path(loop_.get(), ClientOptions{.target = target()}, Header(), KeyOf(*stream),
                           [&] { ++probes; });
  const Instant began = loop_->Now();
  ASSERT_TRUE(Until([&] { return loop_->Now() - began > 2 * kLease && probes > 3; }));
  EXPECT_FALSE(stream->done()) << stream->status();
}

TEST_F(HeartbeatTest, WithoutThemSuchANodeIsLost) {
  // Another node is heard: otherwise the service would take itself for cut off (R4).
  JobSpec& job = std::get<Join>(join_.body).job;
  job.nodes_min = job.nodes_max = 2;
  const auto stream = JoinAs(join_);
  join_.node_id = NodeId("b");
  join_.incarnation = Incarnation(8);
  const auto other = JoinMute();
  const HeartbeatPath path(loop_.get(), ClientOptions{.target = target()}, Header(), KeyOf(*other),
                           [] {});
  ASSERT_TRUE(UntilDone(*stream));
  EXPECT_THAT(stream->status().message(), HasSubstr("silent for longer than the lease"));
}

TEST_F(HeartbeatTest, AClientHasThemBesideItsStream) {
  for (const absl::Duration lease : {kSecondPathBelow - absl::Seconds(1), kSecondPathBelow}) {
    std::get<Join>(join_.body).job.lease = lease;
    join_.node_id = NodeId(absl::FormatDuration(lease));
    join_.run_id = absl::FormatDuration(lease);
    int probes_on_stream = 0;
    int probes_beside = 0;
    std::unique_ptr<RendezvousClient> client = RendezvousClient::Start(
        loop_.get(), {.target = target()},
        {.on_stream_open = [&] { client->Send(join_); },
         .on_message =
             [&](const ServiceMessage& message) {
               if (!std::holds_alternative<Probe>(message)) return;
               ++probes_on_stream;
               AgentMessage renewal = Header();
               renewal.body = Renewal{.nonce = std::get<Probe>(message).nonce};
               client->Send(renewal);
             },
         .on_heartbeat = [&] { ++probes_beside; },
         .on_stream_closed = [](const absl::Status&, bool) {}});
    const int paths = lease < kSecondPathBelow ? 2 : 1;
    ASSERT_TRUE(Until([&] { return probes_beside >= 3 * paths && probes_on_stream >= 3; }));
    // The stream may be ahead by what came before the others were open.
    EXPECT_LE(probes_beside, paths * probes_on_stream);
    client->Finish();
  }
}

TEST(HeartbeatPaths, AreFewerTheLongerALeaseIs) {
  EXPECT_EQ(HeartbeatPaths(kSecondPathBelow - absl::Milliseconds(1)), 2U);
  EXPECT_EQ(HeartbeatPaths(kSecondPathBelow), 1U);
  EXPECT_EQ(HeartbeatPaths(JobSpec().lease), 1U);
  EXPECT_EQ(HeartbeatPaths(kNoPathFrom - absl::Milliseconds(1)), 1U);
  EXPECT_EQ(HeartbeatPaths(kNoPathFrom), 0U);
}

// Where there is none, a silent connection is given up and two others are tried within the lease.
TEST(HeartbeatPaths, NoneLeaveTimeForTwoOtherConnections) {
  JobSpec job;
  const auto time = [&job] {
    return KeepaliveOf(job) + kClientKeepaliveTimeout + absl::Milliseconds(1800 + 3600);
  };
  for (job.nodes_min = 1; job.nodes_min <= kNodesMax; ++job.nodes_min) {
    job.lease = absl::Seconds(5);
    if (HeartbeatPaths(LeaseOf(job)) == 0) {
      EXPECT_LT(time(), LeaseOf(job)) << job.nodes_min;
    }
    job.lease = kNoPathFrom;
    EXPECT_LT(time(), LeaseOf(job)) << job.nodes_min;
  }
}

// Says what the test has it say, and counts the streams beside the agent's.
class ScriptedService final : public v1::Rendezvous::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::ServiceMessage, v1::AgentMessage>;

  // Params: loop: woken whenever a count has changed, for a test that waits for it.
  explicit ScriptedService(EventLoop* loop) : loop_(loop) {}

  grpc::Status Attend(grpc::ServerContext* /*context*/, Stream* stream) override {
    stream->SendInitialMetadata();
    v1::AgentMessage message;
    if (!stream->Read(&message)) return grpc::Status::OK;
    const bool is_agent = message.has_join();
    if (is_agent) agent_ = stream;
    if (!is_agent) ++beside_;
    loop_->Post([] {});
    while (stream->Read(&message)) {
    }
    if (!is_agent) --beside_;
    loop_->Post([] {});
    return grpc::Status::OK;
  }

  bool joined() const { return agent_ != nullptr; }
  int beside() const { return beside_; }
  void Say(const ServiceMessage& message) { agent_.load()->Write(ToProto(message)); }

 private:
  EventLoop* const loop_;
  std::atomic<Stream*> agent_ = nullptr;
  std::atomic<int> beside_ = 0;
};

TEST_F(HeartbeatTest, AreThereWhileTheLeaseInForceIsShort) {
  std::get<Join>(join_.body).job.lease = kSecondPathBelow - absl::Seconds(1);
  ScriptedService service(loop_.get());
  const GrpcListener listener = *StartGrpcListener("127.0.0.1:0", &service);
  std::unique_ptr<RendezvousClient> client =
      RendezvousClient::Start(loop_.get(), {.target = absl::StrCat("127.0.0.1:", listener.port)},
                              {.on_stream_open = [&] { client->Send(join_); },
                               .on_message = [](const ServiceMessage&) {},
                               .on_heartbeat = [] {},
                               .on_stream_closed = [](const absl::Status&, bool) {}});
  const auto has = [&](int count) { return Until([&] { return service.beside() == count; }); };
  ASSERT_TRUE(Until([&] { return service.joined(); }));
  service.Say(Welcome{.term = Term(1), .lease = absl::Seconds(5), .heartbeat_key = 7});
  EXPECT_TRUE(has(1));
  service.Say(Probe{.nonce = 1, .lease = kNoPathFrom});
  EXPECT_TRUE(has(0));
  service.Say(Probe{.nonce = 2});  // the job's own
  EXPECT_TRUE(has(2));
  client.reset();
  listener.server->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));
}

// The client gets the lease of a job with nodes_min nodes, before all of them are here.
TEST_F(HeartbeatTest, AreNotBegunWhereTheLeaseWillBeLong) {
  ScriptedService service(loop_.get());
  const GrpcListener listener = *StartGrpcListener("127.0.0.1:0", &service);
  bool told = false;
  std::unique_ptr<RendezvousClient> client = RendezvousClient::Start(
      loop_.get(), {.target = absl::StrCat("127.0.0.1:", listener.port), .lease = kNoPathFrom},
      {.on_stream_open = [&] { client->Send(join_); },
       .on_message =
           [&](const ServiceMessage& message) { told = std::holds_alternative<Probe>(message); },
       .on_heartbeat = [] {},
       .on_stream_closed = [](const absl::Status&, bool) {}});
  ASSERT_TRUE(Until([&] { return service.joined(); }));
  service.Say(Welcome{.term = Term(1), .lease = absl::Seconds(5), .heartbeat_key = 7});
  service.Say(Probe{.nonce = 1});
  ASSERT_TRUE(Until([&] { return told; }));
  EXPECT_EQ(service.beside(), 0);
  client.reset();
  listener.server->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));
}

TEST_F(HeartbeatTest, EndWithTheirAgentsStream) {
  auto stream = JoinMute();
  RawStream beside(loop_.get(), server_->InProcessChannel());
  beside.Send(Header(KeyOf(*stream)));
  ASSERT_TRUE(Until([&] { return beside.Last(&v1::ServiceMessage::has_probe) != nullptr; }));
  stream->HalfClose();
  ASSERT_TRUE(UntilDone(beside));
  EXPECT_TRUE(absl::IsUnavailable(beside.status())) << beside.status();
}

TEST_F(HeartbeatTest, CarryNothingElse) {
  const auto stream = JoinMute();
  RawStream beside(loop_.get(), server_->InProcessChannel());
  beside.Send(Header(KeyOf(*stream)));
  AgentMessage event = EventOf(join_, 1, 1, GroupSucceeded{});
  beside.Send(event);
  ASSERT_TRUE(UntilDone(beside));
  EXPECT_TRUE(absl::IsInvalidArgument(beside.status())) << beside.status();
  EXPECT_FALSE(stream->done());
  EXPECT_EQ(Status().jobs(0).phase(), "running");
}

TEST_F(HeartbeatTest, NeedTheKeyOfAnOpenStream) {
  const auto stream = JoinMute();
  RawStream beside(loop_.get(), server_->InProcessChannel());
  beside.Send(Header(KeyOf(*stream) + 1));
  ASSERT_TRUE(UntilDone(beside));
  EXPECT_TRUE(absl::IsUnavailable(beside.status())) << beside.status();
}

TEST_F(HeartbeatTest, AreBounded) {
  const auto stream = JoinMute();
  std::vector<std::unique_ptr<RawStream>> many;
  for (int i = 0; i < 9; ++i) {
    many.push_back(std::make_unique<RawStream>(loop_.get(), server_->InProcessChannel()));
    many.back()->Send(Header(KeyOf(*stream)));
  }
  size_t ended = 0;
  ASSERT_TRUE(Until([&] {
    ended = 0;
    for (const auto& beside : many) ended += beside->done() ? 1 : 0;
    return ended > 0;
  }));
  for (const auto& beside : many) {
    EXPECT_TRUE(!beside->done() || absl::IsResourceExhausted(beside->status()));
  }
  EXPECT_EQ(ended, 1U);
}

}  // namespace
}  // namespace ddprun::rendezvous
