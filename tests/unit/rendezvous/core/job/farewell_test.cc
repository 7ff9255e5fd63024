#include "rendezvous/core/job/farewell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/core/bounds.h"
#include "rendezvous/core/failures/failure_list.h"
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

using Newcomer = Farewell::Newcomer;

constexpr absl::Duration kStart = absl::Seconds(60);

// Two of `agents` have come, on hosts a and b.
Farewell Expecting(size_t agents) {
  Farewell farewell;
  farewell.ExpectAgents(agents, Instant() + kStart);
  farewell.OnAgent("a");
  farewell.OnAgent("b");
  return farewell;
}

TEST(Farewell, AgentsThatASchedulerHasStartedAreWaitedFor) {
  Farewell farewell = Expecting(4);
  const Instant end = Instant() + absl::Seconds(5);
  farewell.Begin(end, Failed());
  EXPECT_EQ(farewell.deadline(), Instant() + kStart);
  const Instant late = end + absl::Seconds(10);
  EXPECT_EQ(farewell.OnNewcomer(late, "c"), Newcomer::kLate);
  EXPECT_FALSE(farewell.Finish(late, /*anybody_left=*/false));
  EXPECT_EQ(farewell.OnNewcomer(late, "d"), Newcomer::kLate);
  EXPECT_EQ(farewell.OnNewcomer(late, "e"), Newcomer::kStranger) << "it wasn't started with them";
  EXPECT_FALSE(farewell.Finish(late, /*anybody_left=*/true));
  EXPECT_EQ(farewell.deadline(), late + kFarewell) << "the last one has its time, too";
  EXPECT_TRUE(farewell.Finish(late, /*anybody_left=*/false));
  EXPECT_EQ(farewell.BrokenInvariant(), "");
}

TEST(Farewell, AgentsThatNeverComeAreWaitedForUntilTheirTimeIsOver) {
  Farewell farewell = Expecting(3);
  farewell.Begin(Instant(), Failed());
  const Instant before = Instant() + kStart - absl::Nanoseconds(1);
  EXPECT_FALSE(farewell.Finish(before, /*anybody_left=*/false));
  EXPECT_TRUE(farewell.Finish(Instant() + kStart, /*anybody_left=*/false));
  EXPECT_EQ(farewell.BrokenInvariant(), "");
}

TEST(Farewell, NobodyIsLateForAJobThatWasLongOrStoppedOrHadAll) {
  Farewell longer = Expecting(3);
  longer.Begin(Instant() + kStart, Failed());
  EXPECT_TRUE(longer.Finish(Instant() + kStart, /*anybody_left=*/false));
  Farewell stopped = Expecting(3);
  stopped.Begin(Instant(), {.outcome = Outcome::kStopped, .rule = "stopped"});
  EXPECT_TRUE(stopped.Finish(Instant(), /*anybody_left=*/false));
  Farewell complete = Expecting(2);
  complete.Begin(Instant(), Failed());
  EXPECT_EQ(complete.OnNewcomer(Instant(), "c"), Newcomer::kStranger);
  EXPECT_TRUE(complete.Finish(Instant(), /*anybody_left=*/false));
}

TEST(Farewell, TheNextJobOfTheNameNeedNotWait) {
  Farewell farewell = Expecting(3);
  farewell.Begin(Instant(), Failed());
  EXPECT_EQ(farewell.OnNewcomer(Instant(), "b"), Newcomer::kNextJob);
  EXPECT_TRUE(farewell.Finish(Instant(), /*anybody_left=*/false));
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
    Node& node = nodes_[nodes_.size() + 1];
    node.id = NodeId(id);
    node.info.hostname = "host-" + id;
    node.stream = StreamKey(nodes_.size());
    return node;
  }
  std::string Reader() const { return AudienceOf(nodes_).reader.value(); }

  NodeTable::Nodes nodes_;
};

TEST_F(AudienceTest, NobodyInParticularReads) {
  EXPECT_EQ(AudienceOf(nodes_).nodes, 1U);
  Add("a");
  Add("b").group_rank = 1;
  EXPECT_EQ(AudienceOf(nodes_).nodes, 2U);
  EXPECT_EQ(Reader(), "");
}

TEST_F(AudienceTest, TheServicesNodeThenTheEndpointsThenRankZeros) {
  Add("a");
  Add("b").group_rank = 0;
  EXPECT_EQ(Reader(), "b");
  EXPECT_EQ(AudienceOf(nodes_).reader_host, "host-b");
  Add("c").info.hosts_endpoint = true;
  EXPECT_EQ(Reader(), "c");
  Node& service = Add("d");
  service.info.hosts_service = true;
  EXPECT_EQ(Reader(), "d");
  Add("e").info.hosts_service = true;
  EXPECT_EQ(Reader(), "d") << "one alone, whatever they all say";
  service.stream.reset();
  EXPECT_EQ(Reader(), "e") << "a node that isn't here may never be";
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
