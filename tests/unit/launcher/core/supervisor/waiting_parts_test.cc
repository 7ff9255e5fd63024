// What a waiting node prints for its user, and how long a node that is done waits: EndpointHints,
// StandbyNotice, ExitBarrier.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/core/supervisor/ending.h"
#include "launcher/core/supervisor/endpoint_hints.h"
#include "launcher/core/supervisor/supervisor_text.h"

namespace ddprun::launcher::waiting_parts_test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

Instant Time(double seconds) { return Instant() + absl::Seconds(seconds); }

TEST(StandbyNotice, IsToldOnceWhenTheWaitLasts) {
  StandbyNotice notice;
  EXPECT_TRUE(notice.Deadline().is_infinite());
  EXPECT_TRUE(notice.OnStandby(Time(1), "1 of 2 nodes have joined"));
  EXPECT_FALSE(notice.OnTimer(Time(1.9)).has_value());
  EXPECT_EQ(notice.OnTimer(Time(2)), "1 of 2 nodes have joined");
  EXPECT_FALSE(notice.OnTimer(Time(3)).has_value());
  EXPECT_FALSE(notice.OnStandby(Time(4), "1 of 2 nodes have joined")) << "known";
  EXPECT_TRUE(notice.Deadline().is_infinite());
}

TEST(StandbyNotice, NoReasonIsNothingToTell) {
  StandbyNotice notice;
  notice.OnStandby(Time(0), "one");
  EXPECT_TRUE(notice.OnStandby(Time(0.5), ""));
  EXPECT_TRUE(notice.Deadline().is_infinite());
  EXPECT_FALSE(notice.OnTimer(Time(9)).has_value());
}

TEST(StandbyNotice, ANewReasonIsANewWait) {
  StandbyNotice notice;
  notice.OnStandby(Time(0), "one");
  EXPECT_TRUE(notice.OnStandby(Time(0.9), "two"));
  EXPECT_FALSE(notice.OnTimer(Time(1.8)).has_value());
  EXPECT_EQ(notice.OnTimer(Time(1.9)), "two");
}

TEST(StandbyNotice, AGenerationEndsTheWait) {
  StandbyNotice notice;
  notice.OnStandby(Time(0), "one");
  notice.OnAssigned();
  EXPECT_TRUE(notice.Deadline().is_infinite());
  EXPECT_TRUE(notice.OnStandby(Time(5), "one")) << "a wait of its own";
}

rendezvous::Standby Present(uint32_t nodes, bool spare = false) {
  return {.reason = "", .spare = spare, .nodes_present = nodes};
}

EndpointHints AtLoopback(bool several_nodes) {
  EndpointHints hints({.text = "localhost:29400"}, several_nodes);
  hints.OnEndpoint({.node_address = "localhost", .is_loopback = true});
  return hints;
}

TEST(EndpointHints, ALonelyNodeAtALoopbackIsToldOnce) {
  EndpointHints hints = AtLoopback(/*several_nodes=*/true);
  hints.OnStandby(Time(1), Present(1));
  hints.OnStandby(Time(2), Present(1));  // doesn't begin again
  EXPECT_EQ(hints.Deadline(), Time(3));
  EXPECT_FALSE(hints.OnTimer(Time(2.9)).has_value());
  EXPECT_THAT(hints.OnTimer(Time(3)).value_or(""),
              HasSubstr("no other node has come, and localhost:29400 is this machine's loopback"));
  hints.OnStandby(Time(4), Present(1));
  EXPECT_TRUE(hints.Deadline().is_infinite());
  EXPECT_EQ(hints.BrokenInvariant(), "");
}

TEST(EndpointHints, CompanyOrAGenerationEndsIt) {
  EndpointHints hints = AtLoopback(/*several_nodes=*/true);
  hints.OnStandby(Time(1), Present(1));
  hints.OnStandby(Time(2), Present(2));
  EXPECT_TRUE(hints.Deadline().is_infinite());
  hints.OnStandby(Time(2), Present(1, /*spare=*/true));
  EXPECT_TRUE(hints.Deadline().is_infinite()) << "a spare has company";
  hints.OnStandby(Time(3), Present(1));
  hints.OnAssigned();
  EXPECT_TRUE(hints.Deadline().is_infinite());
}

TEST(EndpointHints, AHostWhoseAddressIsElsewhereIsToldOnce) {
  for (const bool several : {true, false}) {
    EndpointHints hints({.text = "10.9.9.9:29500"}, several);
    hints.OnEndpoint({.node_address = "10.0.0.1", .hosts_service = true, .is_strange = true});
    hints.OnStandby(Time(1), Present(1));
    EXPECT_EQ(hints.BrokenInvariant(), "");
    EXPECT_EQ(hints.Deadline(), several ? Time(11) : Instant::Infinite());
    if (!several) continue;
    EXPECT_THAT(hints.OnTimer(Time(11)).value_or(""),
                HasSubstr("at 10.9.9.9:29500, which is no address of this machine"));
    hints.OnStandby(Time(12), Present(1));
    EXPECT_TRUE(hints.Deadline().is_infinite());
  }
}

TEST(EndpointHints, ASchedulersNodeThatStaysAloneGetsItsHintOnce) {
  EndpointHints hints({.text = "n1:15000", .alone_hint = "srun ddprun …"}, true);
  hints.OnEndpoint({.node_address = "10.0.0.1"});
  hints.OnStandby(Time(1), Present(1));
  EXPECT_EQ(hints.Deadline(), Time(11));
  EXPECT_EQ(hints.OnTimer(Time(11)), "no other node has come. srun ddprun …");
  hints.OnStandby(Time(12), Present(1));
  EXPECT_TRUE(hints.Deadline().is_infinite());
  EXPECT_EQ(hints.BrokenInvariant(), "");
  EndpointHints twin({.text = "n1:15000", .alone_hint = "srun ddprun …"}, true);
  twin.OnStandby(Time(1), Present(1));
  twin.OnStandby(Time(2), Present(2));
  EXPECT_TRUE(twin.Deadline().is_infinite());
}

TEST(EndpointHints, AJobOfOneNodeNeedsNoOther) {
  EndpointHints hints = AtLoopback(/*several_nodes=*/false);
  hints.OnStandby(Time(1), Present(1));
  EXPECT_TRUE(hints.Deadline().is_infinite());
  EXPECT_EQ(hints.WhyNobodyAnswers(), "");
  EXPECT_EQ(hints.BrokenInvariant(), "");
}

TEST(EndpointHints, WhyNobodyAnswers) {
  EXPECT_THAT(AtLoopback(true).WhyNobodyAnswers(), HasSubstr(" Note that localhost:29400 is"));
  EndpointHints hints({.text = "host0:1", .hosts_by_address = true}, true);
  EXPECT_EQ(hints.WhyNobodyAnswers(), "") << "nothing is known of this node yet";
  hints.OnEndpoint({.node_address = "10.0.0.1", .hosts_service = true});
  EXPECT_EQ(hints.WhyNobodyAnswers(), "") << "the service is here";
  hints.OnEndpoint({.node_address = "10.0.0.1"});
  EXPECT_THAT(hints.WhyNobodyAnswers(), HasSubstr("--rdzv_conf is_host=1"));
  hints.OnEndpoint({.node_address = "10.0.0.1", .hosts_endpoint = true});
  EXPECT_EQ(hints.WhyNobodyAnswers(), "") << "another agent of this machine is to have it";
  hints.OnEndpoint({.node_address = "10.0.0.1", .hosts_endpoint = true, .port_is_taken = true});
  EXPECT_THAT(hints.WhyNobodyAnswers(), HasSubstr("ss -ltnp 'sport = :1'"));
  hints.OnEndpoint({.hosts_endpoint = true, .port_is_taken = true, .port_advice = "; advice"});
  EXPECT_THAT(hints.WhyNobodyAnswers(), EndsWith("on all nodes; advice"));
  EndpointHints told({.text = "host0:1", .hosts_by_address = false}, true);
  told.OnEndpoint({.node_address = "10.0.0.1"});
  EXPECT_EQ(told.WhyNobodyAnswers(), "") << "the user named the host";
}

TEST(ExitBarrierPart, ANodeThatNobodyNeedsWaitsForItsTime) {
  ExitBarrier barrier({.timeout = absl::Seconds(2)});
  barrier.OnAssigned(/*group_rank=*/1);
  EXPECT_TRUE(barrier.Deadline().is_infinite());
  barrier.Begin(Time(1), /*hosts_service=*/false);
  EXPECT_FALSE(barrier.OnTimer(Time(2.9)));
  EXPECT_TRUE(barrier.OnTimer(Time(3)));
  EXPECT_FALSE(barrier.OnTimer(Time(4))) << "once";
  EXPECT_THAT(barrier.Why(), HasSubstr("(--exit_barrier_timeout 2s)"));
}

TEST(ExitBarrierPart, WhoIsNeededStays) {
  for (const uint32_t group_rank : {0U, 1U}) {
    ExitBarrier barrier({.timeout = absl::Seconds(2)});
    barrier.OnAssigned(group_rank);
    barrier.Begin(Time(1), /*hosts_service=*/group_rank == 1);
    EXPECT_TRUE(barrier.Deadline().is_infinite()) << group_rank;
  }
}

TEST(ExitBarrierPart, EndsWhereWorkersRunAgain) {
  ExitBarrier barrier({.timeout = absl::Seconds(2)});
  barrier.OnAssigned(1);
  barrier.Begin(Time(1), false);
  barrier.OnAssigned(1);
  EXPECT_TRUE(barrier.Deadline().is_infinite());
  barrier.Begin(Time(2), false);
  barrier.Cancel();
  EXPECT_TRUE(barrier.Deadline().is_infinite());
}

TEST(ExitBarrierPartDeathTest, AGenerationEndsWellOnce) {
  ExitBarrier barrier({.timeout = absl::Seconds(2)});
  barrier.OnAssigned(1);
  barrier.Begin(Time(1), false);
  EXPECT_DEATH(barrier.Begin(Time(2), false), "a generation ends well once");
}

}  // namespace
}  // namespace ddprun::launcher::waiting_parts_test
