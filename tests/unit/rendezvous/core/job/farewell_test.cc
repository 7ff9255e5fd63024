#include "rendezvous/core/job/farewell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/core/bounds.h"
#include "rendezvous/core/failures/verdict_cut.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;

Verdict Failed() {
  return {.outcome = Outcome::kFailed, .reason = "rank 1 crashed", .rule = "restarts_spent"};
}

TEST(Farewell, NothingIsWaitedForBeforeTheEnd) {
  const Farewell farewell;
  EXPECT_FALSE(farewell.begun());
  EXPECT_TRUE(farewell.deadline().is_infinite());
  EXPECT_EQ(farewell.BrokenInvariant(), "");
}

TEST(Farewell, ItIsOverWhenAllAreGoneAndThatOnce) {
  Farewell farewell;
  farewell.Begin(Instant(), Failed());
  EXPECT_EQ(farewell.BrokenInvariant(), "");
  EXPECT_FALSE(farewell.Finish(Instant(), /*anybody_left=*/true));
  EXPECT_TRUE(farewell.Finish(Instant(), /*anybody_left=*/false));
  EXPECT_TRUE(farewell.forgotten());
  EXPECT_TRUE(farewell.deadline().is_infinite());
  EXPECT_FALSE(farewell.Finish(Instant(), /*anybody_left=*/false));
  EXPECT_EQ(farewell.BrokenInvariant(), "");
}

TEST(Farewell, ItIsOverAfterItsTimeWhoeverIsLeft) {
  Farewell farewell;
  farewell.Begin(Instant(), Failed());
  EXPECT_EQ(farewell.deadline(), Instant() + kFarewell);
  const Instant before = Instant() + kFarewell - absl::Nanoseconds(1);
  EXPECT_FALSE(farewell.Finish(before, /*anybody_left=*/true));
  EXPECT_TRUE(farewell.Finish(Instant() + kFarewell, /*anybody_left=*/true));
}

TEST(Farewell, WhoComesTooLateHearsWhatHappened) {
  Farewell farewell;
  farewell.Begin(Instant(), Failed());
  EXPECT_EQ(farewell.Refusal().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(farewell.Refusal().message()),
              HasSubstr("the job has ended (failed: rank 1 crashed)"));
}

constexpr absl::Duration kStart = absl::Seconds(60);

TEST(Farewell, AgentsThatASchedulerHasStartedAreWaitedFor) {
  Farewell farewell;
  farewell.ExpectAgents(4, Instant() + kStart);
  const Instant end = Instant() + absl::Seconds(5);
  farewell.Begin(end, Failed(), {.nodes = 1, .joined = 2});
  EXPECT_EQ(farewell.deadline(), Instant() + kStart);
  EXPECT_TRUE(farewell.TakeLateAgent());
  EXPECT_FALSE(farewell.Finish(end + absl::Seconds(10), /*anybody_left=*/false));
  EXPECT_TRUE(farewell.TakeLateAgent());
  EXPECT_FALSE(farewell.TakeLateAgent()) << "nobody else was started";
  EXPECT_FALSE(farewell.Finish(end + absl::Seconds(10), /*anybody_left=*/true));
  EXPECT_TRUE(farewell.Finish(end + absl::Seconds(10), /*anybody_left=*/false));
  EXPECT_EQ(farewell.BrokenInvariant(), "");
}

TEST(Farewell, AgentsThatNeverComeAreWaitedForUntilTheirTimeIsOver) {
  Farewell farewell;
  farewell.ExpectAgents(3, Instant() + kStart);
  farewell.Begin(Instant(), Failed(), {.nodes = 2, .joined = 2});
  const Instant before = Instant() + kStart - absl::Nanoseconds(1);
  EXPECT_FALSE(farewell.Finish(before, /*anybody_left=*/false));
  EXPECT_TRUE(farewell.Finish(Instant() + kStart, /*anybody_left=*/false));
}

TEST(Farewell, NobodyIsLateForAJobThatWasLongOrStopped) {
  Farewell longer;
  longer.ExpectAgents(3, Instant() + kStart);
  longer.Begin(Instant() + kStart, Failed(), {.nodes = 2, .joined = 2});
  EXPECT_FALSE(longer.TakeLateAgent());
  EXPECT_TRUE(longer.Finish(Instant() + kStart, /*anybody_left=*/false));
  Farewell stopped;
  stopped.ExpectAgents(3, Instant() + kStart);
  stopped.Begin(Instant(), {.outcome = Outcome::kStopped, .rule = "stopped"}, {.joined = 2});
  EXPECT_FALSE(stopped.TakeLateAgent());
  EXPECT_TRUE(stopped.Finish(Instant(), /*anybody_left=*/false));
  Farewell complete;
  complete.ExpectAgents(2, Instant() + kStart);
  complete.Begin(Instant(), Failed(), {.joined = 2});
  EXPECT_FALSE(complete.TakeLateAgent());
}

// A verdict that is too long for 4096 nodes.
Verdict Long() {
  Verdict verdict = Failed();
  verdict.failures.resize(kFailuresMax);
  for (WorkerFailure& failure : verdict.failures) failure.message.assign(kTextBytesMax, 'x');
  return verdict;
}

TEST(Farewell, AFewNodesAreToldAllInOneMessage) {
  Farewell farewell;
  farewell.Begin(Instant(), Long(), {.nodes = 2, .reader = NodeId("a"), .reader_host = "host0"});
  EXPECT_EQ(farewell.WordsFor(NodeId("a")), farewell.WordsFor(NodeId("b")));
  EXPECT_EQ(std::get<Verdict>(*farewell.WordsFor(NodeId("b"))), Long());
}

TEST(Farewell, OfManyNodesOneIsToldAllAndTheOthersWhoItIs) {
  Farewell farewell;
  farewell.Begin(Instant(), Long(), {.nodes = 4096, .reader = NodeId("a"), .reader_host = "host0"});
  EXPECT_EQ(farewell.BrokenInvariant(), "");
  EXPECT_EQ(std::get<Verdict>(*farewell.WordsFor(NodeId("a"))), Long());
  const SharedMessage& others = farewell.WordsFor(NodeId("b"));
  EXPECT_EQ(farewell.WordsFor(NodeId("c")), others) << "one message for all of them";
  const Verdict& cut = std::get<Verdict>(*others);
  EXPECT_LE(BytesOnWire(cut), VerdictBytesFor(4096));
  EXPECT_EQ(cut.whole_on, "host0");
  EXPECT_GT(cut.failures_left_out, 0U);
  EXPECT_EQ(farewell.verdict(), Long());
}

// Nodes a, b, … with streams, in join order.
class AudienceTest : public ::testing::Test {
 protected:
  Node& Add(const std::string& id) {
    Node& node = table_.Add(NodeId(id), Incarnation(++incarnation_), {.hostname = "host-" + id});
    table_.Attach(node, StreamKey(incarnation_), StreamNumber(1));
    return node;
  }
  std::string Reader() const { return AudienceOf(table_).reader.value(); }

  NodeTable table_;
  uint64_t incarnation_ = 0;
};

TEST_F(AudienceTest, NobodyInParticularReads) {
  EXPECT_EQ(AudienceOf(table_).nodes, 1U);
  Add("a");
  Add("b").group_rank = 1;
  EXPECT_EQ(AudienceOf(table_).nodes, 2U);
  EXPECT_EQ(Reader(), "");
}

TEST_F(AudienceTest, TheServicesNodeThenTheEndpointsThenRankZeros) {
  Add("a");
  Add("b").group_rank = 0;
  EXPECT_EQ(Reader(), "b");
  EXPECT_EQ(AudienceOf(table_).reader_host, "host-b");
  Add("c").info.hosts_endpoint = true;
  EXPECT_EQ(Reader(), "c");
  Node& service = Add("d");
  service.info.hosts_service = true;
  EXPECT_EQ(Reader(), "d");
  Add("e").info.hosts_service = true;
  EXPECT_EQ(Reader(), "d") << "one alone, whatever they all say";
  table_.Detach(service);
  EXPECT_EQ(Reader(), "e") << "who isn't here may never be";
}

TEST(FarewellDeath, AJobEndsOnceAndByARule) {
  Farewell farewell;
  EXPECT_DEATH(farewell.Finish(Instant(), false), "not over");
  EXPECT_DEATH(farewell.Begin(Instant(), Verdict{}), "names its rule");
  farewell.Begin(Instant(), Failed());
  EXPECT_DEATH(farewell.Begin(Instant(), Failed()), "ends once");
}

}  // namespace
}  // namespace ddprun::rendezvous
