#include <atomic>
#include <thread>
#include <vector>

#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/server/attend_stream.h"
#include "tests/server/rendezvous_fixture.h"

// What a service does with agents that don't keep the protocol (R6, R9): the stream ends with a
// status that says why, the rest goes on, and it is counted.
namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Message = v1::ServiceMessage;

class HostileTest : public RendezvousFixture {
 protected:
  // Ends every test: a well-behaved agent is still served.
  void ExpectAlive() {
    auto agent = JoinAs(SampleJoin(alive_run_id_, "good"));
    EXPECT_TRUE(UntilAssigned(*agent));
  }
  absl::Status EndOf(const RawStream& stream) {
    EXPECT_TRUE(UntilDone(stream));
    return stream.done() ? stream.status() : absl::OkStatus();
  }
  uint64_t Refused(const std::string& kind) {
    const auto found = server_->refusals().find(kind);
    return found == server_->refusals().end() ? 0 : found->second;
  }
  std::string alive_run_id_ = "good-job";
};

TEST_F(HostileTest, GarbageInsteadOfAMessage) {
  Serve();
  for (int i = 0; i < 3; ++i) {
    auto agent = Open();
    agent->SendBytes("\xFF\xFF\xFF not a message");
    const absl::Status status = EndOf(*agent);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  EXPECT_EQ(Refused("malformed_message"), 3U);
  ExpectAlive();
}

TEST_F(HostileTest, ATextThatIsNoUtf8) {
  Serve();
  v1::AgentMessage proto = ToProto(SampleJoin("job7", "a"));
  std::string bytes = proto.SerializeAsString();
  bytes.replace(bytes.find("host-a"), 1, "\xFF");
  auto agent = Open();
  agent->SendBytes(bytes);
  EXPECT_TRUE(absl::IsInvalidArgument(EndOf(*agent)));
  ExpectAlive();
}

TEST_F(HostileTest, AValueOutOfRangeNamesItsField) {
  Serve();
  v1::AgentMessage proto = ToProto(SampleJoin("job7", "a"));
  proto.mutable_join()->mutable_node()->set_worker_count(5000);
  auto agent = Open();
  agent->Send(proto);
  EXPECT_THAT(std::string(EndOf(*agent).message()), HasSubstr("join.node.worker_count: 5000"));
  ExpectAlive();
}

TEST_F(HostileTest, GarbageAfterTheJoinLosesTheNode) {
  Serve();
  auto agent = JoinAs(SampleJoin("job7", "a"));
  ASSERT_TRUE(UntilAssigned(*agent));
  agent->SendBytes("\xFF");
  EXPECT_TRUE(absl::IsInvalidArgument(EndOf(*agent)));
  const v1::GetStatusReply reply = Status("job7");
  ASSERT_EQ(reply.jobs(0).nodes_size(), 1);
  EXPECT_EQ(reply.jobs(0).nodes(0).state(), "unreachable");
}

TEST_F(HostileTest, TheFirstMessageIsNoJoin) {
  Serve();
  auto agent = Open();
  agent->Send(EventOf(SampleJoin("job7", "a"), 0, 0, Renewal{.nonce = 1}));
  const absl::Status status = EndOf(*agent);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_EQ(Refused("no_join"), 1U);
  EXPECT_EQ(Status().jobs_size(), 0);
}

TEST_F(HostileTest, ASecondJoinOnOneStream) {
  Serve();
  auto agent = JoinAs(SampleJoin("job7", "a"));
  ASSERT_TRUE(UntilAssigned(*agent));
  agent->Send(SampleJoin("job7", "a"));
  EXPECT_TRUE(absl::IsInvalidArgument(EndOf(*agent)));
}

TEST_F(HostileTest, AMessageOfAnotherNodeOnTheStream) {
  Serve();
  const AgentMessage join = SampleJoin("job7", "a");
  for (int field = 0; field < 3; ++field) {
    auto agent = JoinAs(join);
    ASSERT_TRUE(UntilAssigned(*agent));
    AgentMessage event = EventOf(join, 1, 1, GroupSucceeded{});
    if (field == 0) event.run_id = "job8";
    if (field == 1) event.node_id = NodeId("b");
    if (field == 2) event.incarnation = Incarnation(99);
    agent->Send(event);
    EXPECT_TRUE(absl::IsInvalidArgument(EndOf(*agent))) << field;
    server_.reset();
    Serve();
  }
}

TEST_F(HostileTest, AnotherProtocolMajor) {
  Serve();
  v1::AgentMessage proto = ToProto(SampleJoin("job7", "a"));
  proto.mutable_join()->set_protocol_major(2);
  proto.mutable_join()->set_release("9.9.9");
  proto.mutable_join()->clear_node();  // whatever a later protocol does
  auto agent = Open();
  agent->Send(proto);
  const absl::Status status = EndOf(*agent);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("upgrade ddprun where the rendezvous"));
  EXPECT_EQ(Refused("other_protocol"), 1U);
  ExpectAlive();
}

TEST_F(HostileTest, AWrongOrMissingToken) {
  Serve({.token = "geheim"});
  for (const char* token : {"", "geheiM", "geheim2"}) {
    AgentMessage join = SampleJoin("job7", "a");
    std::get<Join>(join.body).token = token;
    auto agent = JoinAs(join);
    const absl::Status status = EndOf(*agent);
    EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  }
  EXPECT_EQ(Refused("join_UNAUTHENTICATED"), 3U);
  EXPECT_EQ(Status().jobs_size(), 0) << "nobody without the token makes the service hold a job";
  AgentMessage join = SampleJoin("job7", "a");
  std::get<Join>(join.body).token = "geheim";
  auto agent = JoinAs(join);
  EXPECT_TRUE(UntilAssigned(*agent));
}

TEST_F(HostileTest, AnAgentOfAnotherTerm) {
  Serve();
  AgentMessage join = SampleJoin("job7", "a");
  join.term = Term(server_->term().value() + 1);
  auto agent = JoinAs(join);
  const absl::Status status = EndOf(*agent);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_EQ(Status().jobs_size(), 0);
}

TEST_F(HostileTest, AnAgentOfAJobThatIsForgotten) {
  Serve();
  AgentMessage join = SampleJoin("job7", "a");
  join.term = server_->term();
  join.generation = Generation(3);
  auto agent = JoinAs(join);
  const absl::Status status = EndOf(*agent);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_TRUE(Until([this] { return Status().jobs_size() == 0; })) << "a refused job stays";
}

TEST_F(HostileTest, AForeignJobAtTheServiceOfOneJob) {
  Serve({.only_run_id = "job7"});
  auto holder = JoinAs(SampleJoin("job7", "a"));
  ASSERT_TRUE(UntilAssigned(*holder));
  auto foreign = JoinAs(SampleJoin("job8", "b"));
  const absl::Status status = EndOf(*foreign);
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("'job7' alone (train.py --lr 0.1)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("'job8'"));
  EXPECT_EQ(Status().jobs_size(), 1);
}

TEST_F(HostileTest, AForeignJobWithoutTheTokenHearsOfNoJob) {
  Serve({.token = "geheim", .only_run_id = "job7"});
  AgentMessage join = SampleJoin("job7", "a");
  std::get<Join>(join.body).token = "geheim";
  auto holder = JoinAs(join);
  ASSERT_TRUE(UntilAssigned(*holder));
  auto foreign = JoinAs(SampleJoin("job8", "b"));
  const absl::Status status = EndOf(*foreign);
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("job7")));
}

TEST_F(HostileTest, AnotherCommandUnderTheSameRunId) {
  Serve();
  auto holder = JoinAs(SampleJoin("job7", "a", 2));
  ASSERT_TRUE(Until([&] { return holder->Last(&Message::has_welcome) != nullptr; }));
  AgentMessage join = SampleJoin("job7", "b", 2);
  std::get<Join>(join.body).job.fingerprint = "beef";
  auto foreign = JoinAs(join);
  EXPECT_TRUE(absl::IsAlreadyExists(EndOf(*foreign)));
}

TEST_F(HostileTest, MoreJobsThanOneServiceHolds) {
  Serve();
  std::vector<std::unique_ptr<RawStream>> agents;
  for (size_t i = 0; i < kJobsMax; ++i)
    agents.push_back(JoinAs(SampleJoin(absl::StrCat(i), "n", 2)));
  for (const auto& agent : agents) {
    ASSERT_TRUE(Until([&] { return agent->Last(&Message::has_welcome) != nullptr; }));
  }
  auto one_more = JoinAs(SampleJoin("one more", "n", 2));
  const absl::Status status = EndOf(*one_more);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("1024"));
}

// A peer that floods fills its own window: what it sends is taken at the pace of the loop, one
// message at a time, and others are served in between.
TEST_F(HostileTest, AFloodOfMessages) {
  constexpr int kFlood = 20'000;
  Serve();
  AgentMessage join = SampleJoin("job7", "a");
  std::get<Join>(join.body).job.lease = absl::Minutes(5);  // it answers no probe
  auto agent = JoinAs(join);
  ASSERT_TRUE(UntilAssigned(*agent));
  for (int i = 0; i < kFlood; ++i) agent->Send(EventOf(join, 1, 0, Renewal{.nonce = 77}));
  ExpectAlive();
  EXPECT_GT(agent->unsent(), kFlood / 10U) << "the other agent had to wait for the whole flood";
  EXPECT_TRUE(Until([&] { return agent->unsent() == 0; }));
  EXPECT_FALSE(agent->done());
}

// The slow reader may be a member that stood still for a while: the refusal must not end it.
TEST_F(HostileTest, ASlowReaderMayTryAgain) {
  Serve();
  std::vector<AgentMessage> joins;
  std::vector<std::unique_ptr<RawStream>> agents;
  for (const char* name : {"a", "b"}) {
    AgentMessage join = SampleJoin("job7", name, 2);
    std::get<Join>(join.body).job.lease = absl::Minutes(5);  // it answers no probe
    joins.push_back(join);
    agents.push_back(Open(/*reads=*/agents.empty()));
    agents.back()->Send(join);
  }
  ASSERT_TRUE(UntilAssigned(*agents[0]));
  HangReport suspicion;  // each time b is asked what it does
  suspicion.workers.push_back({.suspect = true, .activity = Activity::kStill});
  suspicion.sample = absl::Milliseconds(1);
  for (uint64_t i = 1; Refused("slow_reader") == 0 && i < 100'000; ++i) {
    agents[0]->Send(EventOf(joins[0], 1, i, suspicion));
    ASSERT_TRUE(Until([&] { return agents[0]->unsent() < 10; }));
  }
  agents[1]->Read();
  const absl::Status status = EndOf(*agents[1]);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not read"));
}

TEST_F(HostileTest, StreamsThatComeAndGo) {
  Serve();
  for (int i = 0; i < 300; ++i) {
    auto agent = Open();
    if (i % 3 == 0) agent->Send(SampleJoin("job7", absl::StrCat("n", i), 300));
    if (i % 3 == 1) agent->HalfClose();
  }  // each is cancelled at once
  auto silent = Open();
  ASSERT_TRUE(Until([&] { return silent->open(); }));
  silent->HalfClose();
  EXPECT_TRUE(EndOf(*silent).ok());
  ExpectAlive();
}

TEST_F(HostileTest, TheEndOfTheServiceEndsStreams) {
  Serve();
  auto joined = JoinAs(SampleJoin("job7", "a"));
  auto silent = Open();
  auto mute = Open(/*reads=*/false);
  ASSERT_TRUE(UntilAssigned(*joined));
  ASSERT_TRUE(Until([&] { return silent->open() && mute->open(); }));
  const Instant begin = loop_->Now();
  server_->Shutdown();
  EXPECT_LT(loop_->Now() - begin, StreamLimits{}.close) << "it waited for one that doesn't read";
  for (const RawStream* stream : {joined.get(), silent.get()}) {
    EXPECT_TRUE(absl::IsUnavailable(EndOf(*stream))) << stream->status();
  }
}

// A call that arrives while the loop ends the service is finished by the thread that sees it. Over
// sockets: gRPC 1.51's in-process transport crashes in a client that calls while its server ends.
TEST_F(HostileTest, TheEndOfTheServiceUnderLoad) {
  for (int round = 0; round < 10; ++round) {
    Serve();
    const auto channel = MakeChannel(target());
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        const auto stub = v1::Rendezvous::NewStub(channel);
        while (!stop) {
          grpc::ClientContext status_context;
          v1::GetStatusReply reply;
          stub->GetStatus(&status_context, {}, &reply).ok();
          grpc::ClientContext context;
          const auto stream = stub->Attend(&context);
          stream->Write(ToProto(SampleJoin("job7", "a")));
          stream->WritesDone();
          Message message;
          while (stream->Read(&message)) {
          }
          stream->Finish();
        }
      });
    }
    EXPECT_TRUE(Until([this] { return Status().jobs_size() == 1; }));
    server_->Shutdown();
    stop = true;
    for (auto& thread : threads) thread.join();
    server_.reset();
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
