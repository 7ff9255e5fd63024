// What an agent does when its node is asked to leave (R15).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/unit/launcher/core/supervisor_bench.h"

namespace ddprun::launcher {
namespace {

using rendezvous::CommitStop;
using rendezvous::Drain;
using rendezvous::Generation;
using rendezvous::GroupStopped;
using rendezvous::GroupSucceeded;
using rendezvous::Leave;
using rendezvous::Preempt;
using ::testing::HasSubstr;

// One worker of generation 1 runs, on a node that doesn't have the service.
class SupervisorDrainTest : public ::testing::Test {
 protected:
  SupervisorDrainTest() : bench_(/*workers=*/1) {
    bench_.Join();
    bench_.Assign(1);
    bench_.Feed(WorkerStarted{Generation(1), 0, 100});
  }
  void CheckLeft() {
    ASSERT_TRUE(bench_.Sent<Leave>().has_value());
    EXPECT_FALSE(bench_.Sent<Leave>()->preempted) << "the job isn't preempted";
    EXPECT_FALSE(bench_.Sent<Leave>()->end_job);
    EXPECT_EQ(bench_.Sent<Leave>()->reason, "drained: disk");
    bench_.Feed(ServiceStreamClosed{absl::OkStatus(), false});
    EXPECT_EQ(bench_.exit_->status, 75);
    EXPECT_THAT(bench_.told_, HasSubstr("this node has left the job"));
    EXPECT_THAT(bench_.told_, HasSubstr("drained: disk; exit status 75"));
  }

  Bench bench_;
};

TEST_F(SupervisorDrainTest, AsksForAStepAndLeavesWhenTheWorkersHaveSaved) {
  bench_.FeedMessage(Drain{"disk"});
  ASSERT_TRUE(bench_.Sent<Preempt>().has_value());
  EXPECT_TRUE(bench_.Sent<Preempt>()->drained);
  EXPECT_EQ(bench_.Sent<Preempt>()->reason, "drained: disk");
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
  bench_.FeedMessage(Drain{"disk"});  // again, after a reconnect
  EXPECT_FALSE(bench_.Sent<Preempt>().has_value());
  bench_.FeedMessage(CommitStop{
      .generation = Generation(1), .step = 7, .within = absl::Seconds(20), .reason = "drained"});
  bench_.End(1, 0, 0);
  bench_.Feed(GroupEmpty{Generation(1), 4242, 7, 7});
  CheckLeft();
}

TEST_F(SupervisorDrainTest, WithoutAnAgreementTheWorkersGetTerm) {
  bench_.FeedMessage(Drain{"disk"});
  bench_.FeedMessage(rendezvous::StopWorkers{Generation(1), "nobody asks"});
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGTERM);
  bench_.End(1, 0, 0, SIGTERM);
  bench_.Empty(1);
  EXPECT_FALSE(bench_.Sent<GroupStopped>().has_value());
  CheckLeft();
}

TEST_F(SupervisorDrainTest, WhoseWorkersEndedWellLeavesWhenTheGenerationDoes) {
  bench_.End(1, 0, 0);
  bench_.Empty(1);
  ASSERT_TRUE(bench_.Sent<GroupSucceeded>().has_value());
  bench_.FeedMessage(Drain{"disk"});
  EXPECT_FALSE(bench_.Sent<Leave>().has_value());
  bench_.FeedMessage(rendezvous::StopWorkers{Generation(1), "a failure elsewhere"});
  ASSERT_TRUE(bench_.Sent<Leave>().has_value());
  EXPECT_FALSE(bench_.Sent<Leave>()->preempted);
}

TEST(SupervisorDrain, WithoutWorkersItLeavesAtOnce) {
  Bench bench(1);
  bench.Join();
  bench.FeedMessage(Drain{""});
  ASSERT_TRUE(bench.Sent<Leave>().has_value());
  EXPECT_EQ(bench.Sent<Leave>()->reason, "drained");
  EXPECT_FALSE(bench.Sent<Leave>()->preempted);
  bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  EXPECT_EQ(bench.exit_->status, 75);
}

TEST(SupervisorDrain, TheNodeOfTheServiceStays) {
  Bench bench(1, /*hosts=*/true);
  bench.Join();
  bench.Assign(1);
  bench.FeedMessage(Drain{"disk"});
  EXPECT_FALSE(bench.Sent<Preempt>().has_value());
  EXPECT_FALSE(bench.Sent<Leave>().has_value());
  EXPECT_THAT(bench.told_, HasSubstr("it isn't drained"));
}

TEST_F(SupervisorDrainTest, AVerdictIsTheLastWord) {
  bench_.FeedMessage(Drain{"disk"});
  bench_.FeedMessage(rendezvous::Verdict{.outcome = rendezvous::Outcome::kSucceeded});
  bench_.End(1, 0, 0);
  bench_.Empty(1);
  bench_.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  EXPECT_EQ(bench_.exit_->status, 0);
  EXPECT_EQ(bench_.told_.find("has left the job"), std::string::npos);
}

}  // namespace
}  // namespace ddprun::launcher
