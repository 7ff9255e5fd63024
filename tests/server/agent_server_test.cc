// One agent and its workers: assignments, the local store, fencing, and the listeners (rules W of
// docs/PROTOCOL.md).
#include "launcher/agent/agent_server.h"

#include <grpcpp/generic/generic_stub.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>

#include "base/fd.h"
#include "launcher/stores/core/key_value_store.h"
#include "tests/server/agent_server_fixture.h"

namespace ddprun::launcher {
namespace {

using agent::v1::StoreRequest;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class OneAgentTest : public AgentServerTest {
 protected:
  OneAgentTest() : server_(StartServer(Options("a"))), worker_(loop_.get(), Target("a")) {}

  std::unique_ptr<AgentServer> server_;
  Client worker_;
};

// ------------------------------------------------------------- assignments

TEST_F(OneAgentTest, AssignmentSaysWhatTheEnvironmentSays) {
  rendezvous::Assignment assignment = Generation(4);
  assignment.restart_count = 1;
  assignment.world_size = 6;
  assignment.group_rank = 2;
  assignment.group_world_size = 3;
  assignment.base_rank = 4;
  assignment.master_addr = "host0";
  assignment.master_port = 29500;
  server_->BeginGeneration(assignment);
  const auto call = worker_.GetAssignment(1, 3, 0);
  ASSERT_EQ(EndOf(call), "OK");
  EXPECT_EQ(call->reply.ShortDebugString(),
            "generation: 4 rank: 5 local_rank: 1 world_size: 6 local_world_size: 2 group_rank: 2 "
            "group_world_size: 3 restart_count: 1 max_restarts: 3 run_id: \"job7\" master_addr: "
            "\"host0\" master_port: 29500 node_address: \"a\"");
}

TEST_F(OneAgentTest, AssignmentWaitsForANewerGeneration) {
  const auto first = worker_.GetAssignment(0, 0, kLongMs);
  Settle(&worker_);
  EXPECT_FALSE(first->done);
  server_->BeginGeneration(Generation(3));
  EXPECT_EQ(EndOf(first), "OK");
  EXPECT_EQ(first->reply.generation(), 3U);

  const auto next = worker_.GetAssignment(0, 3, kLongMs);
  Settle(&worker_);
  EXPECT_FALSE(next->done);
  server_->EndGeneration(rendezvous::Generation(3), "worker 1 failed");
  // A generation that is over is nobody's assignment.
  const auto at_once = worker_.GetAssignment(0, 0, 0);
  EXPECT_THAT(EndOf(at_once),
              AllOf(StartsWith("DEADLINE_EXCEEDED"), HasSubstr("3 is over: worker 1 failed")));
  server_->BeginGeneration(Generation(5));
  EXPECT_EQ(EndOf(next), "OK");
  EXPECT_EQ(next->reply.generation(), 5U);
}

TEST_F(OneAgentTest, AssignmentTimesOut) {
  server_->BeginGeneration(Generation(3));
  EXPECT_EQ(EndOf(worker_.GetAssignment(0, 3, 20)),
            "DEADLINE_EXCEEDED: assignment: no generation after 3 began within 20 ms; 3 is current "
            "here; ask again");
}

TEST_F(OneAgentTest, AssignmentOfAnUnknownLocalRank) {
  EXPECT_THAT(EndOf(worker_.GetAssignment(2, 0, kLongMs)),
              AllOf(StartsWith("INVALID_ARGUMENT"), HasSubstr("no local rank 2"),
                    HasSubstr("has 2 workers")));
}

// W1
TEST_F(OneAgentTest, AssignmentsAreForThisNodeOnly) {
  server_->BeginGeneration(Generation(3));
  Client peer(loop_.get(), Peer(*server_));
  EXPECT_THAT(EndOf(peer.GetAssignment(0, 0, 0)), StartsWith("PERMISSION_DENIED"));
  EXPECT_EQ(EndOf(worker_.GetAssignment(0, 0, 0)), "OK");
}

TEST_F(OneAgentTest, TheStateOfANodeIsToldOnItsMachineOnly) {
  const auto state = worker_.GetNodeState();
  EXPECT_EQ(EndOf(state), "OK") << "also before any generation";
  EXPECT_EQ(state->reply.node_id(), "a");
  Client peer(loop_.get(), Peer(*server_));
  EXPECT_THAT(EndOf(peer.GetNodeState()), StartsWith("PERMISSION_DENIED"));
}

// W11
TEST_F(OneAgentTest, MemoryForCheckpointsIsForWorkersOfThisNode) {
  const auto kept = worker_.KeepMemory(1, 2, 50);
  EXPECT_EQ(EndOf(kept), "OK") << "also before any generation";
  EXPECT_EQ(kept->reply.ShortDebugString(), "path: \"/memory/1/2\" bytes: 50");
  EXPECT_EQ(EndOf(worker_.KeepMemory(1, 2, 101)), "RESOURCE_EXHAUSTED: 100 bytes at most");
  EXPECT_THAT(EndOf(worker_.KeepMemory(2, 0, 50)), StartsWith("INVALID_ARGUMENT"));
  Client peer(loop_.get(), Peer(*server_));
  EXPECT_THAT(EndOf(peer.KeepMemory(0, 0, 50)), StartsWith("PERMISSION_DENIED"));
}

// ------------------------------------------------------------- the local store (W5, W6)

TEST_F(OneAgentTest, EveryOperationOverTheWire) {
  server_->BeginGeneration(Generation(1));
  const std::string binary("\0\xff\n", 3);
  EXPECT_EQ(EndOf(worker_.Set(1, "k", binary)), "OK");
  const auto get = worker_.Get(1, "k", 0);
  EXPECT_EQ(EndOf(get), "OK");
  EXPECT_EQ(get->reply.value(), binary);
  const auto wait = worker_.Send(1, [](StoreRequest* r) {
    r->mutable_wait()->add_keys("k");
    r->mutable_wait()->add_keys("absent");
  });
  EXPECT_THAT(EndOf(wait), AllOf(StartsWith("DEADLINE_EXCEEDED"), HasSubstr("'absent'")));
  const auto add = worker_.Send(1, [](StoreRequest* r) {
    r->mutable_add()->set_key("n");
    r->mutable_add()->set_amount(-5);
  });
  EXPECT_EQ(EndOf(add), "OK");
  EXPECT_EQ(add->reply.number(), -5);
  const auto check = worker_.Send(1, [](StoreRequest* r) {
    r->mutable_check()->add_keys("k");
    r->mutable_check()->add_keys("n");
  });
  EXPECT_EQ(EndOf(check), "OK");
  EXPECT_TRUE(check->reply.found());
  const auto compare = worker_.Send(1, [](StoreRequest* r) {
    r->mutable_compare_set()->set_key("n");
    r->mutable_compare_set()->set_expected("-5");
    r->mutable_compare_set()->set_desired("six");
  });
  EXPECT_EQ(EndOf(compare), "OK");
  EXPECT_EQ(compare->reply.value(), "six");
  const auto erase = worker_.Send(1, [](StoreRequest* r) { r->mutable_delete_()->set_key("k"); });
  EXPECT_EQ(EndOf(erase), "OK");
  EXPECT_TRUE(erase->reply.found());
  const auto count = worker_.Send(1, [](StoreRequest* r) { r->mutable_count(); });
  EXPECT_EQ(EndOf(count), "OK");
  EXPECT_EQ(count->reply.number(), 1);
}

TEST_F(OneAgentTest, KeysAreAnyBytes) {
  server_->BeginGeneration(Generation(1));
  const std::string key("\xff\0k", 3);
  EXPECT_EQ(EndOf(worker_.Set(1, key, "v")), "OK");
  EXPECT_EQ(EndOf(worker_.Get(1, key, 0)), "OK");
  EXPECT_THAT(EndOf(worker_.Get(1, "\xff", 0)), HasSubstr("key '\\xff' not there (keys"));
}

TEST_F(OneAgentTest, GetWaitsForItsKeyOrItsTimeout) {
  server_->BeginGeneration(Generation(1));
  const auto late = worker_.Get(1, "never", 30);
  const auto met = worker_.Get(1, "k", kLongMs);
  Settle(&worker_);
  EXPECT_FALSE(met->done);
  EXPECT_EQ(EndOf(worker_.Set(1, "k", "v")), "OK");
  EXPECT_EQ(EndOf(met), "OK");
  EXPECT_EQ(met->reply.value(), "v");
  EXPECT_THAT(EndOf(late), AllOf(StartsWith("DEADLINE_EXCEEDED"), HasSubstr("within 30ms")));
}

TEST_F(OneAgentTest, CancelledCallerLeavesNothingBehind) {
  server_->BeginGeneration(Generation(1));
  const auto gone = worker_.Get(1, "k", kLongMs);
  const auto stays = worker_.Get(1, "k", kLongMs);
  const auto parked = worker_.Get(2, "k", kLongMs);
  Settle(&worker_);
  gone->context.TryCancel();
  parked->context.TryCancel();
  EXPECT_THAT(EndOf(gone), StartsWith("CANCELLED"));
  EXPECT_THAT(EndOf(parked), StartsWith("CANCELLED"));
  Settle(&worker_);
  EXPECT_EQ(EndOf(worker_.Set(1, "k", "v")), "OK");
  EXPECT_EQ(EndOf(stays), "OK");
  server_->BeginGeneration(Generation(2));
}

TEST_F(OneAgentTest, LargestValueAndOneByteMore) {
  server_->BeginGeneration(Generation(1));
  std::string value(StoreBounds{}.value_bytes, 'x');
  EXPECT_EQ(EndOf(worker_.Set(1, "k", value)), "OK");
  const auto get = worker_.Get(1, "k", 0);
  EXPECT_EQ(EndOf(get), "OK");
  EXPECT_EQ(get->reply.value().size(), value.size());
  value += 'x';
  EXPECT_THAT(EndOf(worker_.Set(1, "k", value)),
              AllOf(StartsWith("RESOURCE_EXHAUSTED"), HasSubstr("store set 'k'")));
  value.resize(kAgentMessageBytesMax);
  EXPECT_THAT(EndOf(worker_.Set(1, "k", value)), StartsWith("RESOURCE_EXHAUSTED"));
}

// ------------------------------------------------------------- fencing (W2, W3)

TEST_F(OneAgentTest, OlderGenerationsAreOver) {
  server_->BeginGeneration(Generation(3));
  const auto waits = worker_.Get(3, "k", kLongMs);
  Settle(&worker_);
  server_->BeginGeneration(Generation(4));
  EXPECT_EQ(EndOf(waits), "ABORTED: generation 3 is over; 4 is current: get the new assignment");
  EXPECT_EQ(EndOf(worker_.Set(3, "k", "v")),
            "ABORTED: generation 3 is over; 4 is current: get the new assignment");
  EXPECT_EQ(EndOf(worker_.Set(4, "k", "v")), "OK");
  server_->EndGeneration(rendezvous::Generation(4), "node b was lost");
  EXPECT_EQ(EndOf(worker_.Set(4, "k", "v")), "ABORTED: generation 4 is over: node b was lost");
  EXPECT_THAT(EndOf(worker_.Set(3, "k", "v")),
              AllOf(StartsWith("ABORTED: generation 3 is over"), HasSubstr("node b was lost")));
}

TEST_F(OneAgentTest, EveryGenerationBeginsWithAnEmptyStore) {
  server_->BeginGeneration(Generation(3));
  EXPECT_EQ(EndOf(worker_.Set(3, "k", "v")), "OK");
  server_->BeginGeneration(Generation(4));
  EXPECT_THAT(EndOf(worker_.Get(4, "k", 0)), StartsWith("DEADLINE_EXCEEDED"));
}

TEST_F(OneAgentTest, EndOfAGenerationAbortsThoseThatWait) {
  server_->BeginGeneration(Generation(3));
  const auto waits = worker_.Get(3, "k", kLongMs);
  const auto early = worker_.Get(4, "k", kLongMs);
  Settle(&worker_);
  server_->EndGeneration(rendezvous::Generation(2), "not the current one");
  server_->EndGeneration(rendezvous::Generation(4), "not the current one");
  Settle(&worker_);
  EXPECT_FALSE(waits->done);
  server_->EndGeneration(rendezvous::Generation(3), "worker 1 failed");
  EXPECT_EQ(EndOf(waits), "ABORTED: generation 3 is over: worker 1 failed");
  EXPECT_FALSE(early->done);
  server_->BeginGeneration(Generation(4));
  EXPECT_EQ(EndOf(worker_.Set(4, "k", "v")), "OK");
  EXPECT_EQ(EndOf(early), "OK");
}

TEST_F(OneAgentTest, NewerGenerationIsWaitedFor) {
  const auto early = worker_.Set(2, "k", "v");
  const auto earlier = worker_.Set(1, "k", "v");
  const auto wait = worker_.Get(2, "k", kLongMs);
  Settle(&worker_);
  EXPECT_FALSE(early->done);
  server_->BeginGeneration(Generation(2));
  EXPECT_EQ(EndOf(early), "OK");
  EXPECT_EQ(EndOf(wait), "OK");
  EXPECT_THAT(EndOf(earlier), StartsWith("ABORTED: generation 1 is over; 2 is current"));
}

TEST_F(AgentServerTest, NewerGenerationIsNotWaitedForForEver) {
  AgentServerOptions options = Options("a");
  options.generation_wait = absl::Milliseconds(20);
  const auto server = StartServer(options);
  Client worker(loop_.get(), Target("a"));
  EXPECT_THAT(EndOf(worker.Set(1, "k", "v")),
              AllOf(StartsWith("UNAVAILABLE: store set: generation 1 did not begin"),
                    HasSubstr("within 20ms; none has begun here")));
}

TEST_F(OneAgentTest, GenerationsOnlyGrow) {
  server_->BeginGeneration(Generation(3));
  EXPECT_EQ(EndOf(worker_.Set(3, "k", "v")), "OK");
  server_->BeginGeneration(Generation(3));
  server_->BeginGeneration(Generation(2));
  EXPECT_EQ(EndOf(worker_.Get(3, "k", 0)), "OK");
  server_->EndGeneration(rendezvous::Generation(3), "done");
  server_->BeginGeneration(Generation(3));
  EXPECT_EQ(EndOf(worker_.Get(3, "k", 0)), "ABORTED: generation 3 is over: done");
}

TEST_F(OneAgentTest, ForeignAndMalformedRequestsAreRefused) {
  server_->BeginGeneration(Generation(1));
  const auto foreign = worker_.Send(1, [](StoreRequest* r) {
    r->mutable_count();
    r->set_run_id("job8");
  });
  EXPECT_THAT(EndOf(foreign), AllOf(StartsWith("PERMISSION_DENIED"), HasSubstr("job 'job8'"),
                                    HasSubstr("serves job 'job7'")));
  const auto unnamed = worker_.Send(1, [](StoreRequest* r) {
    r->mutable_count();
    r->clear_run_id();
  });
  EXPECT_THAT(EndOf(unnamed), StartsWith("PERMISSION_DENIED"));
  EXPECT_THAT(EndOf(worker_.Send(0, [](StoreRequest* r) { r->mutable_count(); })),
              AllOf(StartsWith("INVALID_ARGUMENT"), HasSubstr("no generation")));
  EXPECT_THAT(EndOf(worker_.Send(1, [](StoreRequest*) {})),
              AllOf(StartsWith("INVALID_ARGUMENT"), HasSubstr("no operation")));
  EXPECT_THAT(EndOf(worker_.Set(1, "", "v")), StartsWith("INVALID_ARGUMENT"));
}

// gRPC itself refuses what is no StoreRequest, with this code; the agent goes on.
TEST_F(OneAgentTest, BytesThatAreNoRequestAreRefused) {
  server_->BeginGeneration(Generation(1));
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(Target("a"), grpc::InsecureChannelCredentials(), {}));
  for (const std::string bytes : {"\x0a\xff", "\xff\xff\xff", "\x12\x01\xff"}) {
    grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer reply;
    auto outcome = std::make_shared<Outcome<agent::v1::StoreReply>>();
    stub.UnaryCall(&outcome->context, "/ddprun.agent.v1.Agent/Store", {}, &request, &reply,
                   [&, outcome](const grpc::Status& status) {
                     loop_->Post([outcome, status] {
                       outcome->status = rendezvous::FromGrpcStatus(status);
                       outcome->done = true;
                     });
                   });
    EXPECT_THAT(EndOf(outcome), StartsWith("UNIMPLEMENTED"));
  }
  EXPECT_EQ(EndOf(worker_.Set(1, "k", "v")), "OK");
}

// W8
TEST_F(AgentServerTest, CallsBeyondTheBoundAreRefused) {
  AgentServerOptions options = Options("a");
  options.calls_max = 3;
  const auto server = StartServer(options);
  server->BeginGeneration(Generation(1));
  Client worker(loop_.get(), Target("a"));
  Client another(loop_.get(), Target("a"));
  std::vector<StoreOutcome> waiting;
  for (int i = 0; i < 3; ++i) waiting.push_back(worker.Get(1, "k", kLongMs));
  ASSERT_TRUE(LoopUntil(loop_.get(), [&] {
    return absl::IsResourceExhausted(Finished(another.Set(1, "other", "v"))->status);
  }));
  waiting.back()->context.TryCancel();
  EXPECT_TRUE(Ends(waiting.back()));
  ASSERT_TRUE(
      LoopUntil(loop_.get(), [&] { return Finished(another.Set(1, "k", "v"))->status.ok(); }));
  for (const StoreOutcome& call : waiting) EXPECT_TRUE(Ends(call));
}

// ------------------------------------------------------------- listeners and the end (W1, W7)

TEST_F(OneAgentTest, SocketIsTheOwnersAndGoesWithTheServer) {
  const std::string path = Options("a").socket_path;
  struct stat found {};
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode, S_IFSOCK | 0600U);
  server_->Shutdown("done");
  EXPECT_NE(stat(path.c_str(), &found), 0);
}

TEST_F(AgentServerTest, NoPeerListenerOnOneNode) {
  AgentServerOptions options = Options("a");
  options.peer_listen = "";
  const auto server = StartServer(options);
  EXPECT_EQ(server->peer_port(), 0);
  server->BeginGeneration(Generation(1));
  Client worker(loop_.get(), Target("a"));
  EXPECT_EQ(EndOf(worker.Set(1, "k", "v")), "OK");
}

TEST_F(OneAgentTest, PortInUseIsSaid) {
  AgentServerOptions options = Options("b");
  options.peer_listen = Peer(*server_);
  const auto second = AgentServer::Start(loop_.get(), options);
  EXPECT_THAT(second.status().ToString(),
              AllOf(HasSubstr(options.peer_listen), HasSubstr("EADDRINUSE")));
}

TEST_F(AgentServerTest, SocketThatCanNotBeMadeIsSaid) {
  AgentServerOptions options = Options("a");
  options.socket_path = absl::StrCat(directory_, "/missing/a");
  auto server = AgentServer::Start(loop_.get(), options);
  EXPECT_THAT(server.status().ToString(),
              AllOf(StartsWith("NOT_FOUND"), HasSubstr(options.socket_path)));
  options.socket_path = absl::StrCat(directory_, "/", std::string(108, 'x'));
  server = AgentServer::Start(loop_.get(), options);
  EXPECT_THAT(server.status().ToString(),
              AllOf(StartsWith("INVALID_ARGUMENT"), HasSubstr("1 to 107 are allowed")));
}

TEST_F(OneAgentTest, ShutdownAnswersEverythingThatIsPending) {
  server_->BeginGeneration(Generation(1));
  const auto wait = worker_.Get(1, "k", kLongMs);
  const auto early = worker_.Get(2, "k", kLongMs);
  const auto assignment = worker_.GetAssignment(0, 1, kLongMs);
  Settle(&worker_);
  server_->Shutdown("the job succeeded");
  // gRPC may take a call later than those that were made after it.
  const auto is_the_end =
      AnyOf("ABORTED: the job succeeded", "ABORTED: the agent is ending; the job is over");
  EXPECT_THAT(EndOf(wait), is_the_end);
  EXPECT_THAT(EndOf(early), is_the_end);
  EXPECT_THAT(EndOf(assignment), is_the_end);
  EXPECT_FALSE(EndOf(worker_.Set(1, "k", "v")) == "OK");
  server_->BeginGeneration(Generation(2));
  server_->EndGeneration(rendezvous::Generation(2), "ignored");
  server_->Shutdown("again");
}

// Connections that never say anything, or stop reading, must not hold up the end.
TEST_F(OneAgentTest, ShutdownDoesNotWaitForSilentConnections) {
  const Fd mute(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Fd greeted(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = Options("a").socket_path;
  std::copy(path.begin(), path.end(), address.sun_path);
  for (const Fd* fd : {&mute, &greeted}) {
    ASSERT_EQ(connect(fd->get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  const absl::string_view greeting("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  ASSERT_TRUE(WriteAll(greeted.get(), greeting).ok());
  Settle(&worker_);
  const Instant before = loop_->Now();
  server_->Shutdown("done");
  EXPECT_LT(loop_->Now() - before, absl::Seconds(2) * Slow());
}

// Calls that have arrived at gRPC, but not at the loop yet.
TEST_F(OneAgentTest, ShutdownAnswersWhatTheLoopHasNotSeen) {
  server_->BeginGeneration(Generation(1));
  Settle(&worker_);
  std::vector<StoreOutcome> calls;
  for (int i = 0; i < 100; ++i) calls.push_back(worker_.Get(1, "k", kLongMs));
  server_->Shutdown("the job failed");
  for (const StoreOutcome& call : calls) EXPECT_NE(EndOf(call), "OK");
}

}  // namespace
}  // namespace ddprun::launcher
