// Agents of two nodes: store calls of the one whose node has no rank 0 go to the other (W2 to W4 of
// docs/PROTOCOL.md).
#include <cstdlib>

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "absl/time/clock.h"
#include "launcher/stores/core/key_value_store.h"
#include "tests/server/agent_server_fixture.h"
#include "tests/support/strangers.h"

namespace ddprun::launcher {
namespace {

using agent::v1::StoreRequest;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Rank 0 is on node a; worker_b's calls are forwarded.
class TwoAgentsTest : public AgentServerTest {
 protected:
  TwoAgentsTest()
      : a_(StartServer(Options("a"))),
        b_(StartServer(Options("b"))),
        worker_a_(loop_.get(), Target("a")),
        worker_b_(loop_.get(), Target("b")) {}

  void Begin(uint64_t generation) {
    a_->BeginGeneration(Generation(generation));
    b_->BeginGeneration(Generation(generation, Peer(*a_)));
  }
  // What worker b sent before has been handled by both agents.
  void SettleBoth() {
    Settle(&worker_b_);
    EXPECT_EQ(EndOf(worker_b_.Send(1, [](StoreRequest* r) { r->mutable_count(); })), "OK");
  }

  std::unique_ptr<AgentServer> a_;
  std::unique_ptr<AgentServer> b_;
  Client worker_a_;
  Client worker_b_;
};

TEST_F(TwoAgentsTest, WorkersOfBothNodesShareOneStore) {
  Begin(1);
  EXPECT_EQ(EndOf(worker_b_.Set(1, "k", "from b")), "OK");
  const auto at_a = worker_a_.Get(1, "k", 0);
  EXPECT_EQ(EndOf(at_a), "OK");
  EXPECT_EQ(at_a->reply.value(), "from b");
  const auto add = [](StoreRequest* r) {
    r->mutable_add()->set_key("n");
    r->mutable_add()->set_amount(1);
  };
  EXPECT_EQ(EndOf(worker_a_.Send(1, add)), "OK");
  const auto second = worker_b_.Send(1, add);
  EXPECT_EQ(EndOf(second), "OK");
  EXPECT_EQ(second->reply.number(), 2);
}

TEST_F(TwoAgentsTest, WaitersOfBothNodesAreAnswered) {
  Begin(1);
  std::vector<StoreOutcome> waiters;
  for (int i = 0; i < 300; ++i) {
    waiters.push_back(worker_a_.Get(1, "k", kLongMs));
    waiters.push_back(worker_b_.Get(1, "k", kLongMs));
  }
  Settle(&worker_a_);
  SettleBoth();
  for (const StoreOutcome& waiter : waiters) EXPECT_FALSE(waiter->done);
  EXPECT_EQ(EndOf(worker_b_.Set(1, "k", "v")), "OK");
  for (const StoreOutcome& waiter : waiters) {
    EXPECT_EQ(EndOf(waiter), "OK");
    EXPECT_EQ(waiter->reply.value(), "v");
  }
}

TEST_F(TwoAgentsTest, ErrorsOfTheStoreComeThroughUnchanged) {
  Begin(1);
  EXPECT_EQ(EndOf(worker_b_.Get(1, "k", 20)), EndOf(worker_a_.Get(1, "k", 20)));
  EXPECT_THAT(EndOf(worker_b_.Get(1, "k", 20)),
              StartsWith("DEADLINE_EXCEEDED: store get: key 'k'"));
  EXPECT_THAT(EndOf(worker_b_.Set(1, "", "v")), StartsWith("INVALID_ARGUMENT: store set"));
  const std::string too_large(StoreBounds{}.value_bytes + 1, 'x');
  EXPECT_THAT(EndOf(worker_b_.Set(1, "k", too_large)), StartsWith("RESOURCE_EXHAUSTED: store set"));
}

TEST_F(TwoAgentsTest, LargestValueIsForwarded) {
  Begin(1);
  EXPECT_EQ(EndOf(worker_b_.Set(1, "k", std::string(StoreBounds{}.value_bytes, 'x'))), "OK");
  const auto get = worker_b_.Get(1, "k", 0);
  EXPECT_EQ(EndOf(get), "OK");
  EXPECT_EQ(get->reply.value().size(), StoreBounds{}.value_bytes);
}

TEST_F(TwoAgentsTest, RankZeroMayLearnOfTheGenerationLater) {
  b_->BeginGeneration(Generation(1, Peer(*a_)));
  const auto early = worker_b_.Set(1, "k", "v");
  Settle(&worker_b_);
  Settle(&worker_a_);
  EXPECT_FALSE(early->done);
  a_->BeginGeneration(Generation(1));
  EXPECT_EQ(EndOf(early), "OK");
}

TEST_F(TwoAgentsTest, RankZeroMayLearnOfTheNextGenerationEarlier) {
  Begin(1);
  const auto waits = worker_b_.Get(1, "k", kLongMs);
  SettleBoth();
  a_->BeginGeneration(Generation(2));
  EXPECT_EQ(EndOf(waits), "ABORTED: generation 1 is over; 2 is current: get the new assignment");
  EXPECT_THAT(EndOf(worker_b_.Set(1, "k", "v")), StartsWith("ABORTED: generation 1 is over"));
}

TEST_F(TwoAgentsTest, EndOfTheGenerationAbortsForwardedCalls) {
  Begin(1);
  const auto waits = worker_b_.Get(1, "k", kLongMs);
  SettleBoth();
  b_->EndGeneration(rendezvous::Generation(1), "worker 1 failed");
  EXPECT_EQ(EndOf(waits), "ABORTED: generation 1 is over: worker 1 failed");
  Begin(2);
  EXPECT_EQ(EndOf(worker_b_.Set(2, "k", "v")), "OK");
}

TEST_F(TwoAgentsTest, ShutdownAbortsForwardedCalls) {
  Begin(1);
  const auto waits = worker_b_.Get(1, "k", kLongMs);
  SettleBoth();
  b_->Shutdown("the job failed");
  EXPECT_EQ(EndOf(waits), "ABORTED: the job failed");
}

TEST_F(TwoAgentsTest, RankZeroMayMove) {
  Begin(1);
  EXPECT_EQ(EndOf(worker_b_.Set(1, "k", "v")), "OK");
  a_->BeginGeneration(Generation(2, Peer(*b_)));
  b_->BeginGeneration(Generation(2));
  EXPECT_THAT(EndOf(worker_a_.Get(2, "k", 0)), StartsWith("DEADLINE_EXCEEDED"));
  EXPECT_EQ(EndOf(worker_a_.Set(2, "k", "new")), "OK");
  EXPECT_EQ(EndOf(worker_b_.Get(2, "k", 0)), "OK");
}

// Two agents that each have the other's address for their peer's must not forward a call in a
// circle.
TEST_F(TwoAgentsTest, CallsAreForwardedOnce) {
  a_->BeginGeneration(Generation(1, Peer(*b_)));
  b_->BeginGeneration(Generation(1, Peer(*a_)));
  EXPECT_THAT(EndOf(worker_b_.Set(1, "k", "v")),
              AllOf(StartsWith("FAILED_PRECONDITION"), HasSubstr(Peer(*b_)),
                    HasSubstr("not at this agent")));
}

TEST_F(TwoAgentsTest, PeersOfAnotherJobAreRefused) {
  Begin(1);
  Client peer(loop_.get(), Peer(*a_));
  const auto foreign = peer.Send(1, [](StoreRequest* r) {
    r->set_run_id("job8");
    r->mutable_count();
  });
  EXPECT_THAT(EndOf(foreign), StartsWith("PERMISSION_DENIED"));
  EXPECT_EQ(EndOf(peer.Send(1, [](StoreRequest* r) { r->mutable_count(); })), "OK");
}

TEST_F(TwoAgentsTest, LostPeerIsSaidAndANewOneIsFound) {
  Begin(1);
  EXPECT_EQ(EndOf(worker_b_.Set(1, "k", "v")), "OK");
  const auto waits = worker_b_.Get(1, "absent", kLongMs);
  SettleBoth();
  AgentServerOptions again = Options("a");
  again.peer_listen = Peer(*a_);
  a_.reset();
  EXPECT_THAT(EndOf(waits), ::testing::AnyOf(StartsWith("UNAVAILABLE"), StartsWith("ABORTED")));
  EXPECT_THAT(
      EndOf(worker_b_.Set(1, "k", "v")),
      AllOf(StartsWith("UNAVAILABLE: store set: rank 0's agent at "), HasSubstr(again.peer_listen),
            HasSubstr("its node may be lost, wait for the next generation")));
  // The next one at the same address is asked at once, without the old one's back-off.
  a_ = StartServer(again);
  Begin(2);
  EXPECT_EQ(EndOf(worker_b_.Set(2, "k", "v")), "OK");
}

// ------------------------------------------------------------- strangers at the agent's door

class DoorTest : public AgentServerTest {
 protected:
  // Has worker b's call go to agent a, over and over, as long as it doesn't come through.
  bool OtherNodesGetIn(AgentServer* a) {
    uint64_t generation = 1;
    for (const Instant began = loop_->Now(); loop_->Now() - began < absl::Seconds(20);
         ++generation) {
      const auto b = StartServer(WithToken(Options("b")));
      a->BeginGeneration(Generation(generation));
      b->BeginGeneration(Generation(generation, Peer(*a)));
      Client worker(loop_.get(), Target("b"));
      if (EndOf(worker.Set(generation, "k", "v")) == "OK") return true;
    }
    return false;
  }
  static AgentServerOptions WithToken(AgentServerOptions options) {
    options.token = "geheim";
    return options;
  }
};

// gRPC's own listener is gone for good after that (the negative control in front_door_test).
TEST_F(DoorTest, OtherNodesGetInOnceThereAreDescriptors) {
  const auto a = StartServer(WithToken(Options("a")));
  rendezvous::Stranger first(loop_.get());
  rendezvous::DescriptorsAtMost none(3);
  ASSERT_EQ(first.Come(a->peer_port()), 0);
  EXPECT_FALSE(LoopUntil(
      loop_.get(), [&] { return first.served(); }, absl::Seconds(1)));
  none.End();
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return first.served(); }));
  EXPECT_TRUE(OtherNodesGetIn(a.get()));
}

TEST_F(DoorTest, ACrowdKeepsNoNodeOut) {
  const rendezvous::DescriptorsAtMost few(256);
  const auto a = StartServer(WithToken(Options("a")));
  const rendezvous::Crowd crowd(loop_.get(), a->peer_port(), 1000, "127.0.0.2");
  ASSERT_TRUE(LoopUntil(loop_.get(), [&] { return crowd.here(); }));
  EXPECT_TRUE(OtherNodesGetIn(a.get()));
}

TEST_F(DoorTest, TwinWithoutBoundsTheNextOneIsNotServed) {
  const rendezvous::DescriptorsAtMost few(256);
  rendezvous::Stranger late(loop_.get());
  AgentServerOptions options = Options("a");
  options.door = rendezvous::DoorBounds{.strangers = 1U << 20, .per_address = 1U << 20};
  const auto a = StartServer(options);
  const rendezvous::Crowd crowd(loop_.get(), a->peer_port(), 1000, "127.0.0.2");
  ASSERT_TRUE(LoopUntil(loop_.get(), [&] { return crowd.here(); }));
  ASSERT_EQ(late.Come(a->peer_port()), 0);
  EXPECT_FALSE(LoopUntil(
      loop_.get(), [&] { return late.served(); }, absl::Seconds(3)));
}

// The only place is a stranger's until it has shown the token.
TEST_F(DoorTest, AnotherNodeTakesNoPlaceAndIsNotEnded) {
  AgentServerOptions options = WithToken(Options("a"));
  options.door = rendezvous::DoorBounds{.strangers = 1, .per_address = 1};
  const auto a = StartServer(options);
  const auto b = StartServer(WithToken(Options("b")));
  a->BeginGeneration(Generation(1));
  b->BeginGeneration(Generation(1, Peer(*a)));
  Client worker(loop_.get(), Target("b"));
  EXPECT_EQ(EndOf(worker.Set(1, "k", "v")), "OK");
  const auto waits = worker.Get(1, "absent", kLongMs);
  rendezvous::Stranger first(loop_.get());
  ASSERT_EQ(first.Come(a->peer_port()), 0);
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return first.served(); }));
  rendezvous::Stranger next(loop_.get());
  ASSERT_EQ(next.Come(a->peer_port(), rendezvous::kPreface, "127.0.0.2"), 0);
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return next.served() && first.ended(); }));
  EXPECT_FALSE(waits->done) << "its connection lives";
  EXPECT_EQ(EndOf(worker.Set(1, "absent", "v")), "OK");
  EXPECT_EQ(EndOf(waits), "OK");
}

// ------------------------------------------------------------- a peer that misbehaves

// Takes the place of rank 0's agent: answers every store call with one status, or never.
class FakePeer final : public agent::v1::Agent::CallbackService {
 public:
  explicit FakePeer(EventLoop* loop) : loop_(loop) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // Set before the first call. Without one: no answer until the caller cancels.
  std::optional<grpc::Status> status;
  // Seen on the loop.
  int received = 0;
  int cancelled = 0;

 private:
  class Call final : public grpc::ServerUnaryReactor {
   public:
    explicit Call(FakePeer* peer) : peer_(peer) {
      peer_->loop_->Post([peer = peer_] { ++peer->received; });
      if (peer_->status.has_value()) Finish(*peer_->status);
    }
    void OnCancel() override {
      if (peer_->status.has_value()) return;
      peer_->loop_->Post([peer = peer_] { ++peer->cancelled; });
      Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }

   private:
    FakePeer* const peer_;
  };

  grpc::ServerUnaryReactor* Store(grpc::CallbackServerContext* /*context*/,
                                  const StoreRequest* /*request*/,
                                  agent::v1::StoreReply* /*reply*/) override {
    return new Call(this);
  }

  EventLoop* const loop_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class FakePeerTest : public AgentServerTest {
 protected:
  FakePeerTest() : peer_(loop_.get()), worker_(loop_.get(), Target("b")) {}
  void Start(AgentServerOptions options) {
    server_ = StartServer(std::move(options));
    server_->BeginGeneration(Generation(1, peer_.address()));
  }

  FakePeer peer_;
  std::unique_ptr<AgentServer> server_;
  Client worker_;
};

TEST_F(FakePeerTest, CancelOfTheWorkerReachesThePeer) {
  Start(Options("b"));
  const auto call = worker_.Get(1, "k", kLongMs);
  ASSERT_TRUE(LoopUntil(loop_.get(), [&] { return peer_.received == 1; }));
  call->context.TryCancel();
  EXPECT_THAT(EndOf(call), StartsWith("CANCELLED"));
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return peer_.cancelled == 1; }));
}

TEST_F(FakePeerTest, EndOfTheGenerationReachesThePeer) {
  Start(Options("b"));
  const auto call = worker_.Get(1, "k", kLongMs);
  ASSERT_TRUE(LoopUntil(loop_.get(), [&] { return peer_.received == 1; }));
  server_->EndGeneration(rendezvous::Generation(1), "over");
  EXPECT_EQ(EndOf(call), "ABORTED: generation 1 is over: over");
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return peer_.cancelled == 1; }));
}

TEST_F(FakePeerTest, SilentPeerIsSaid) {
  AgentServerOptions options = Options("b");
  options.generation_wait = absl::Milliseconds(20);
  options.peer_patience = absl::Milliseconds(20);
  Start(options);
  EXPECT_THAT(EndOf(worker_.Set(1, "k", "v")),
              AllOf(StartsWith("UNAVAILABLE: store set: rank 0's agent at "),
                    HasSubstr("gave no answer within 40ms")));
  EXPECT_THAT(EndOf(worker_.Get(1, "k", 30)), HasSubstr("gave no answer within 70ms"));
}

// The worker must not take trouble between agents for an answer of the store.
TEST_F(FakePeerTest, TroubleOfTheConnectionIsUnavailable) {
  peer_.status = grpc::Status(grpc::StatusCode::INTERNAL, "RST_STREAM");
  Start(Options("b"));
  EXPECT_THAT(EndOf(worker_.Set(1, "k", "v")),
              AllOf(StartsWith("UNAVAILABLE: store set: rank 0's agent at "),
                    HasSubstr("is unavailable (RST_STREAM)")));
}

TEST_F(FakePeerTest, WhatThePeerRefusesIsPassedOn) {
  peer_.status = grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "another job");
  Start(Options("b"));
  EXPECT_EQ(EndOf(worker_.Set(1, "k", "v")), "PERMISSION_DENIED: another job");
}

TEST_F(AgentServerTest, AddressThatIsNoneIsUnavailable) {
  const auto server = StartServer(Options("b"));
  server->BeginGeneration(Generation(1, "no such address"));
  Client worker(loop_.get(), Target("b"));
  EXPECT_THAT(EndOf(worker.Set(1, "k", "v")),
              AllOf(StartsWith("UNAVAILABLE"), HasSubstr("no such address")));
}

// gRPC would send even 127.0.0.1 through a proxy of the environment.
class ProxyTest : public AgentServerTest {
 protected:
  // gRPC looks at this one first; an empty one, as some shells have it, would hide the others.
  ProxyTest() {
    setenv("grpc_proxy", "http://127.0.0.1:1", 1);
    for (const char* name : {"no_grpc_proxy", "no_proxy"}) unsetenv(name);
  }
  ~ProxyTest() override { unsetenv("grpc_proxy"); }
};

TEST_F(ProxyTest, AgentsAreCalledDirectly) {
  const auto a = StartServer(Options("a"));
  const auto b = StartServer(Options("b"));
  a->BeginGeneration(Generation(1));
  b->BeginGeneration(Generation(1, Peer(*a)));
  Client worker(loop_.get(), Target("b"));
  EXPECT_EQ(EndOf(worker.Set(1, "k", "v")), "OK");
}

// Negative control: with gRPC's defaults the call is lost.
TEST_F(ProxyTest, DefaultsGoThroughTheProxy) {
  const auto a = StartServer(Options("a"));
  a->BeginGeneration(Generation(1));
  const auto stub =
      agent::v1::Agent::NewStub(grpc::CreateChannel(Peer(*a), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  StoreRequest request;
  request.set_run_id(kRunId);
  request.set_generation(1);
  request.mutable_count();
  agent::v1::StoreReply reply;
  EXPECT_EQ(stub->Store(&context, request, &reply).error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace ddprun::launcher
