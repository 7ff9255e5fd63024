// Workers that rejoin: what one agent's server makes of AwaitGenerationEnd and of what follows it
// (R3 of docs/PROTOCOL.md).
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/agent/agent_server.h"
#include "tests/server/agent_server_fixture.h"

namespace ddprun::launcher {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class AgentRejoinTest : public AgentServerTest {
 protected:
  AgentRejoinTest() : server_(StartServer(Telling())), worker_(loop_.get(), Target("a")) {}

  AgentServerOptions Telling() {
    AgentServerOptions options = Options("a");
    options.on_can_rejoin = [this](rendezvous::Generation generation, uint32_t local_rank,
                                   bool /*same_place*/) {
      told_.push_back(absl::StrCat("can ", generation.value(), ".", local_rank));
    };
    options.on_let_go = [this](rendezvous::Generation generation, uint32_t local_rank) {
      told_.push_back(absl::StrCat("let go ", generation.value(), ".", local_rank));
    };
    options.on_can_park = [this](uint32_t local_rank) {
      told_.push_back(absl::StrCat("can park ", local_rank));
    };
    return options;
  }
  void EndTurn(uint64_t generation, const std::set<uint32_t>& spared) {
    server_->EndTurn(rendezvous::Generation(generation), "rank 1 was killed", spared);
  }
  void Started(uint64_t generation, uint32_t local_rank) {
    server_->OnStarted(rendezvous::Generation(generation), local_rank);
    Settle(&worker_);
  }
  // The worker's call is there, and waits for the end of generation 1.
  EndOutcome AwaitEndOfGenerationOne() {
    server_->BeginGeneration(Generation(1));
    const EndOutcome end = worker_.AwaitGenerationEnd(0, 1);
    AwaitTold(1);
    return end;
  }
  // The worker outlives generation 1, and its call returns the end.
  void OutliveGenerationOne() {
    const EndOutcome end = AwaitEndOfGenerationOne();
    EndTurn(1, {0});
    EXPECT_EQ(EndOf(end), "OK");
  }
  // Waits for the reports of `count` calls: gRPC may hand a call over later than those that were
  // made after it.
  void AwaitTold(size_t count) {
    EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return told_.size() >= count; }));
  }
  // The reports since the last call: `count`, or more.
  std::vector<std::string> Told(size_t count) {
    AwaitTold(count);
    Settle(&worker_);
    return std::exchange(told_, {});
  }

  std::vector<std::string> told_;
  std::unique_ptr<AgentServer> server_;
  Client worker_;
};

TEST_F(AgentRejoinTest, AWorkerWaitsLetsGoAndGetsItsNextPlace) {
  server_->BeginGeneration(Generation(1));
  const EndOutcome end = worker_.AwaitGenerationEnd(0, 1);
  EXPECT_THAT(Told(1), ElementsAre("can 1.0"));
  EXPECT_FALSE(end->done);
  EndTurn(1, {0});
  ASSERT_EQ(EndOf(end), "OK");
  EXPECT_EQ(end->reply.why(), "rank 1 was killed");
  EXPECT_THAT(Told(0), IsEmpty());
  const AssignmentOutcome next = worker_.GetAssignment(0, 1, kLongMs);
  EXPECT_THAT(Told(1), ElementsAre("let go 1.0"));
  server_->BeginGeneration(Generation(2), {0});
  EXPECT_THAT(Told(0), IsEmpty());
  EXPECT_FALSE(next->done) << "the keeper has it in generation 1";
  Started(2, 1);
  Started(1, 0);
  EXPECT_FALSE(next->done) << "this is another worker's, and of another generation";
  Started(2, 0);
  ASSERT_EQ(EndOf(next), "OK");
  EXPECT_EQ(next->reply.generation(), 2U);
}

TEST_F(AgentRejoinTest, WhoAsksAfterItWasTakenOverIsToldAtOnce) {
  OutliveGenerationOne();
  server_->BeginGeneration(Generation(2), {0});
  Started(2, 0);
  EXPECT_EQ(Finished(worker_.GetAssignment(0, 1, kLongMs))->reply.generation(), 2U);
}

// The worker releases generation 2, then gets its place in generation 3; the late start in
// generation 2 doesn't change that.
TEST_F(AgentRejoinTest, WhoWaitsToBeTakenOverLetsGoOfAGenerationThatEndsBefore) {
  OutliveGenerationOne();
  const AssignmentOutcome next = worker_.GetAssignment(0, 1, kLongMs);
  EXPECT_THAT(Told(2), ElementsAre("can 1.0", "let go 1.0"));
  server_->BeginGeneration(Generation(2), {0});
  EndTurn(2, {0});
  EXPECT_THAT(Told(1), ElementsAre("let go 2.0"));
  Started(2, 0);
  EXPECT_FALSE(next->done);
  server_->BeginGeneration(Generation(3), {0});
  Started(3, 0);
  EXPECT_EQ(Finished(next)->reply.generation(), 3U);
}

TEST_F(AgentRejoinTest, AWorkerSaysThatItsProgramCanBeStartedAhead) {
  const AssignmentOutcome first = worker_.GetAssignment(1, 0, kLongMs, /*can_park=*/true);
  EXPECT_THAT(Told(0), IsEmpty()) << "it has no place yet";
  server_->BeginGeneration(Generation(1));
  EXPECT_EQ(EndOf(first), "OK");
  EXPECT_THAT(Told(1), ElementsAre("can park 1"));
  EXPECT_EQ(EndOf(worker_.GetAssignment(0, 0, kLongMs)), "OK");
  EXPECT_THAT(Told(0), IsEmpty()) << "this one doesn't say so";
}

// Negative control: a worker that doesn't wait for the end of its generation releases nothing.
TEST_F(AgentRejoinTest, TwinAPlainWorkerOnlyAsks) {
  server_->BeginGeneration(Generation(1));
  EndTurn(1, {});
  const AssignmentOutcome next = worker_.GetAssignment(0, 1, kLongMs);
  EXPECT_THAT(Told(0), IsEmpty());
  server_->BeginGeneration(Generation(2));
  EXPECT_EQ(EndOf(next), "OK");
}

TEST_F(AgentRejoinTest, TheEndIsToldAgainAndOfOlderGenerations) {
  OutliveGenerationOne();
  EXPECT_EQ(Finished(worker_.AwaitGenerationEnd(0, 1))->reply.why(), "rank 1 was killed");
  server_->BeginGeneration(Generation(2), {0});
  EXPECT_EQ(Finished(worker_.AwaitGenerationEnd(0, 1))->reply.why(), "generation 1 is over");
}

TEST_F(AgentRejoinTest, WhoWasKeptHasLetGoOfWhatItNeverHeardOf) {
  OutliveGenerationOne();
  server_->BeginGeneration(Generation(2), {0});
  EndTurn(2, {0});
  server_->EndGeneration(rendezvous::Generation(2), "rank 1 was killed again");
  told_.clear();
  const AssignmentOutcome next = worker_.GetAssignment(0, 1, kLongMs);
  EXPECT_THAT(Told(1), ElementsAre("let go 2.0"));
  server_->BeginGeneration(Generation(3), {0});
  Started(3, 0);
  EXPECT_EQ(Finished(next)->reply.generation(), 3U);
  // The process of the next generation is another one.
  EndTurn(3, {});
  EXPECT_THAT(EndOf(worker_.AwaitGenerationEnd(0, 3)), StartsWith("FAILED_PRECONDITION"));
}

TEST_F(AgentRejoinTest, TheSuccessorOfOneThatWasKeptWaitsForNobody) {
  OutliveGenerationOne();
  server_->BeginGeneration(Generation(2), {0});
  EndTurn(2, {});
  server_->BeginGeneration(Generation(3));
  EXPECT_EQ(Finished(worker_.GetAssignment(0, 0, kLongMs))->reply.generation(), 3U);
}

TEST_F(AgentRejoinTest, WhoIsNotSparedIsTold) {
  const EndOutcome end = AwaitEndOfGenerationOne();
  EndTurn(1, {});
  EXPECT_THAT(EndOf(end), AllOf(StartsWith("ABORTED"), HasSubstr("rank 1 was killed")));
  EXPECT_THAT(EndOf(worker_.AwaitGenerationEnd(1, 1)),
              AllOf(StartsWith("FAILED_PRECONDITION"), HasSubstr("is being stopped"),
                    HasSubstr("rank 1 was killed")));
  const AssignmentOutcome next = worker_.GetAssignment(0, 1, kLongMs);
  EXPECT_THAT(Told(1), ElementsAre("can 1.0"));
  server_->Shutdown("the job is over");
  EXPECT_THAT(EndOf(next), AllOf(StartsWith("ABORTED"), HasSubstr("the job is over")));
}

TEST_F(AgentRejoinTest, TheEndOfTheJobIsToldToWhoWaits) {
  const EndOutcome end = AwaitEndOfGenerationOne();
  server_->Shutdown("the job has succeeded");
  EXPECT_THAT(EndOf(end), AllOf(StartsWith("ABORTED"), HasSubstr("the job has succeeded")));
}

TEST_F(AgentRejoinTest, OthersAreRefused) {
  EXPECT_THAT(EndOf(worker_.AwaitGenerationEnd(0, 1)),
              AllOf(StartsWith("FAILED_PRECONDITION"), HasSubstr("none has begun here")));
  server_->BeginGeneration(Generation(2));
  EXPECT_THAT(EndOf(worker_.AwaitGenerationEnd(0, 0)), StartsWith("INVALID_ARGUMENT"));
  EXPECT_THAT(EndOf(worker_.AwaitGenerationEnd(7, 2)),
              AllOf(StartsWith("INVALID_ARGUMENT"), HasSubstr("no local rank 7")));
  for (const uint64_t generation : {1, 3}) {
    EXPECT_THAT(EndOf(worker_.AwaitGenerationEnd(0, generation)),
                AllOf(StartsWith("FAILED_PRECONDITION"), HasSubstr("the newest here is 2")));
  }
  Client stranger(loop_.get(), Peer(*server_));
  EXPECT_THAT(EndOf(stranger.AwaitGenerationEnd(0, 2)), StartsWith("PERMISSION_DENIED"));
  EXPECT_THAT(Told(0), IsEmpty());
}

TEST_F(AgentRejoinTest, ACallerThatIsGoneLeavesItsWord) {
  const EndOutcome end = AwaitEndOfGenerationOne();
  end->context.TryCancel();
  EXPECT_THAT(EndOf(end), StartsWith("CANCELLED"));
  EXPECT_THAT(Told(1), ElementsAre("can 1.0"));
  EndTurn(1, {0});
  EXPECT_EQ(EndOf(worker_.AwaitGenerationEnd(0, 1)), "OK");
  EXPECT_THAT(Told(0), IsEmpty());
}

}  // namespace
}  // namespace ddprun::launcher
