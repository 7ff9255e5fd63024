#include "launcher/core/supervisor/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <vector>

#include "tests/unit/launcher/core/supervisor_bench.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Generation;
using ::testing::HasSubstr;

TEST(SupervisorTest, RunsAGenerationToSuccess) {
  Bench bench;
  bench.Join();
  bench.Assign(1);
  ASSERT_TRUE(bench.Effect<SpawnGroup>().has_value());
  bench.Feed(WorkerStarted{Generation(1), 0, 10});
  EXPECT_FALSE(bench.Sent<rendezvous::WorkersStarted>().has_value());
  bench.Feed(WorkerStarted{Generation(1), 1, 11});
  EXPECT_TRUE(bench.Sent<rendezvous::WorkersStarted>().has_value());
  bench.End(1, 0, 0);
  EXPECT_FALSE(bench.Effect<SweepGroup>().has_value());
  bench.End(1, 1, 0);
  EXPECT_TRUE(bench.Effect<SweepGroup>().has_value());
  bench.Empty(1);
  EXPECT_TRUE(bench.Sent<rendezvous::GroupSucceeded>().has_value());
  bench.FeedMessage(rendezvous::Verdict{.outcome = rendezvous::Outcome::kSucceeded});
  EXPECT_TRUE(bench.Effect<FinishStream>().has_value());
  EXPECT_FALSE(bench.exit_.has_value());
  bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  ASSERT_TRUE(bench.exit_.has_value());
  EXPECT_EQ(bench.exit_->status, 0);
}

TEST(SupervisorTest, AFailureIsReportedAtOnceAndStopsTheNode) {
  Bench bench;
  bench.Join();
  bench.Assign(1);
  bench.End(1, 1, 3);
  const auto failed = bench.Sent<rendezvous::WorkerFailed>();
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->failure.rank, 3U);  // base rank 2 + local rank 1
  EXPECT_EQ(bench.Effect<SignalGroup>()->signal, SIGTERM);
  bench.Advance(absl::Milliseconds(1));
  bench.End(1, 0, 0, SIGTERM);
  EXPECT_FALSE(bench.Sent<rendezvous::WorkerFailed>().has_value());
  EXPECT_TRUE(bench.Effect<SweepGroup>().has_value());
  bench.Empty(1);
  const auto stopped = bench.Sent<rendezvous::GroupStopped>();
  ASSERT_TRUE(stopped.has_value());
  EXPECT_EQ(stopped->failures.size(), 1U);
  EXPECT_EQ(stopped->master_port, 4242U);
  bench.Assign(2);
  EXPECT_TRUE(bench.Effect<SpawnGroup>().has_value());
}

TEST(SupervisorTest, AStopFromTheServiceIsAnsweredWhenEmpty) {
  Bench bench;
  bench.Join();
  bench.Assign(1);
  bench.FeedMessage(rendezvous::StopWorkers{Generation(1), "node b was lost"});
  EXPECT_TRUE(bench.Effect<SignalGroup>().has_value());
  EXPECT_FALSE(bench.Sent<rendezvous::GroupStopped>().has_value());
  bench.End(1, 0, 0, SIGTERM);
  bench.End(1, 1, 0, SIGTERM);
  bench.Empty(1);
  ASSERT_TRUE(bench.Sent<rendezvous::GroupStopped>().has_value());
  EXPECT_TRUE(bench.Sent<rendezvous::GroupStopped>()->failures.empty());
}

TEST(SupervisorTest, ASucceededNodeAnswersAStopAtOnce) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.End(1, 0, 0);
  bench.Empty(1);
  bench.FeedMessage(rendezvous::StopWorkers{Generation(1), "rank 3 failed"});
  EXPECT_TRUE(bench.Sent<rendezvous::GroupStopped>().has_value());
}

// Workers of other nodes use the stores that are here for as long as they run.
TEST(SupervisorTest, TheStoresOfAGenerationOutliveItsWorkersHereButNotTheGeneration) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.End(1, 0, 0);
  EXPECT_TRUE(bench.Effect<SweepGroup>().has_value());
  EXPECT_FALSE(bench.Effect<EndGeneration>().has_value());
  bench.Empty(1);
  EXPECT_FALSE(bench.Effect<EndGeneration>().has_value());
  bench.FeedMessage(rendezvous::StopWorkers{Generation(1), "rank 3 failed"});
  ASSERT_TRUE(bench.Effect<EndGeneration>().has_value());
  EXPECT_EQ(bench.Effect<EndGeneration>()->generation, Generation(1));
  EXPECT_EQ(bench.Effect<EndGeneration>()->why, "rank 3 failed");

  bench.Assign(2);
  bench.End(2, 0, 3);  // the sweep comes with the end: nobody else needs them
  EXPECT_TRUE(bench.Effect<SweepGroup>().has_value());
  EXPECT_EQ(bench.Effect<EndGeneration>()->generation, Generation(2));
  bench.Empty(2);
  EXPECT_FALSE(bench.Effect<EndGeneration>().has_value());  // once
  EXPECT_TRUE(bench.Sent<rendezvous::GroupStopped>().has_value());

  bench.Assign(3);
  bench.End(3, 0, 0);
  bench.FeedMessage(rendezvous::StopWorkers{Generation(3), "node b was lost"});  // while it sweeps
  bench.Empty(3);
  EXPECT_EQ(bench.Effect<EndGeneration>()->generation, Generation(3));
  EXPECT_TRUE(bench.Sent<rendezvous::GroupStopped>().has_value());
}

TEST(SupervisorTest, AMissedStopIsMadeGoodByTheNextAssignment) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.Assign(2);
  EXPECT_FALSE(bench.Effect<SpawnGroup>().has_value());
  EXPECT_TRUE(bench.Effect<SignalGroup>().has_value());
  bench.End(1, 0, 0, SIGTERM);
  bench.Empty(1);
  ASSERT_TRUE(bench.Effect<SpawnGroup>().has_value());
  EXPECT_EQ(bench.Effect<SpawnGroup>()->assignment.generation, Generation(2));
  bench.Assign(1);  // late and old
  EXPECT_TRUE(bench.effects_.empty());
}

TEST(SupervisorTest, UnconfirmedEventsAreSentAgainAfterAReconnect) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.Feed(ServiceStreamClosed{absl::UnavailableError("reset"), true});
  bench.End(1, 0, 3);
  EXPECT_FALSE(bench.Sent<rendezvous::WorkerFailed>().has_value());
  bench.Empty(1);
  bench.Join(/*processed=*/0);
  EXPECT_TRUE(bench.Sent<rendezvous::WorkerFailed>().has_value());
  EXPECT_TRUE(bench.Sent<rendezvous::GroupStopped>().has_value());
  bench.Feed(ServiceStreamClosed{absl::UnavailableError("reset"), true});
  bench.Join(/*processed=*/2);
  EXPECT_FALSE(bench.Sent<rendezvous::WorkerFailed>().has_value());
}

TEST(SupervisorTest, WorkersGoOnWithoutTheServiceUntilTheTimeout) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.Feed(ServiceStreamClosed{absl::UnavailableError("connection refused"), true});
  bench.Advance(absl::Seconds(89.9));
  EXPECT_FALSE(bench.Effect<SignalGroup>().has_value());
  EXPECT_THAT(bench.told_, HasSubstr("lost the rendezvous service at host0:29400"));
  bench.Advance(absl::Seconds(0.2));
  EXPECT_TRUE(bench.Effect<SignalGroup>().has_value());
  EXPECT_THAT(bench.told_, HasSubstr("connection refused"));
  bench.End(1, 0, 0, SIGTERM);
  bench.Empty(1);
  ASSERT_TRUE(bench.exit_.has_value());
  EXPECT_EQ(bench.exit_->status, 1);
}

TEST(SupervisorTest, AWorkerThatFailsWithoutTheServiceShortensTheWait) {
  for (const int code : {0, 3}) {
    Bench bench(1);
    bench.Join();
    bench.Assign(1);
    bench.Feed(ServiceStreamClosed{absl::UnavailableError("connection refused"), true});
    bench.Advance(absl::Seconds(20));
    bench.End(1, 0, code);
    bench.Empty(1);
    bench.Advance(absl::Seconds(9.9));
    EXPECT_FALSE(bench.exit_.has_value());
    bench.Advance(absl::Seconds(0.2));
    EXPECT_EQ(bench.exit_.has_value(), code != 0) << "a node that is done waits for the others";
    bench.Advance(absl::Seconds(60));
    EXPECT_TRUE(bench.exit_.has_value());
  }
}

TEST(SupervisorTest, ASpareWaitsAsLongAsTheOthersAndBeforeTheFirstGenerationNobodyDoes) {
  for (const bool spare : {true, false}) {
    Bench bench(1);
    bench.Join();
    bench.FeedMessage(rendezvous::Standby{.reason = "why", .spare = spare});
    bench.Feed(ServiceStreamClosed{absl::UnavailableError("connection refused"), true});
    bench.Advance(absl::Seconds(spare ? 89.9 : 9.9));
    EXPECT_FALSE(bench.exit_.has_value());
    bench.Advance(absl::Seconds(0.2));
    EXPECT_TRUE(bench.exit_.has_value());
  }
}

TEST(SupervisorTest, ASilentServiceIsALostService) {
  Bench bench(1);
  bench.Join();
  bench.Advance(absl::Seconds(4.9));
  bench.FeedMessage(rendezvous::Probe{.nonce = 7});
  EXPECT_EQ(bench.Sent<rendezvous::Renewal>()->nonce, 7U);
  bench.Advance(absl::Seconds(4.9));
  EXPECT_EQ(bench.told_, "");
  bench.Advance(absl::Seconds(0.2));
  EXPECT_THAT(bench.told_, HasSubstr("silent"));
  bench.Advance(absl::Seconds(85));
  EXPECT_THAT(bench.told_, HasSubstr("lost the job"));
  EXPECT_TRUE(bench.exit_.has_value())
      << "nothing is left to wait for, though the stream seems open";
}

TEST(SupervisorTest, NobodyAnswersIsToldSoonAndTriedUntilJoinTimeout) {
  Bench bench;
  bench.Feed(ServiceStreamClosed{absl::UnavailableError("connection refused"), true});
  bench.Advance(absl::Seconds(1));
  EXPECT_THAT(bench.told_, HasSubstr("can't reach the rendezvous service at host0:29400"));
  EXPECT_THAT(bench.told_, HasSubstr("connection refused"));
  bench.Advance(absl::Seconds(598));
  EXPECT_FALSE(bench.exit_.has_value());
  bench.Advance(absl::Seconds(1));
  ASSERT_TRUE(bench.exit_.has_value());
  EXPECT_EQ(bench.exit_->status, 1);
}

// The test before this one has none: then the join timeout is the bound.
TEST(SupervisorTest, NobodyAnswersWithinTheReadTimeout) {
  SupervisorConfig config = Bench::Config(2);
  config.service.reach = absl::Seconds(5);
  Bench bench(config, /*hosts=*/false);
  bench.Feed(ServiceStreamClosed{absl::UnavailableError("connection refused"), true});
  bench.Advance(absl::Seconds(4.9));
  EXPECT_FALSE(bench.exit_.has_value());
  bench.Advance(absl::Seconds(0.1));
  ASSERT_TRUE(bench.exit_.has_value());
  EXPECT_EQ(bench.exit_->status, 1);
  EXPECT_THAT(bench.told_, HasSubstr("no answer within 5s (--rdzv_conf read_timeout)"));
}

TEST(SupervisorTest, ARefusalEndsTheAgent) {
  Bench bench;
  bench.Feed(StreamOpened{});
  bench.Feed(ServiceStreamClosed{absl::AlreadyExistsError("node rank 0 is held by host1"), false});
  ASSERT_TRUE(bench.exit_.has_value());
  EXPECT_EQ(bench.exit_->status, 1);
  EXPECT_THAT(bench.told_, HasSubstr("node rank 0 is held by host1"));
}

TEST(SupervisorTest, TheHostLeavesLast) {
  Bench bench(1, /*hosts=*/true);
  bench.Join();
  bench.Assign(1);
  bench.End(1, 0, 0);
  bench.Empty(1);
  bench.FeedMessage(rendezvous::Verdict{.outcome = rendezvous::Outcome::kSucceeded});
  bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  EXPECT_FALSE(bench.exit_.has_value());
  bench.Feed(ServiceExited{"exited with status 0"});
  ASSERT_TRUE(bench.exit_.has_value());
  EXPECT_EQ(bench.exit_->status, 0);
}

TEST(SupervisorTest, TheHostDoesNotWaitForEver) {
  Bench bench(1, /*hosts=*/true);
  bench.Join();
  bench.FeedMessage(rendezvous::Verdict{.outcome = rendezvous::Outcome::kStopped});
  bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  bench.Advance(absl::Seconds(5));
  EXPECT_TRUE(bench.exit_.has_value());
}

TEST(SupervisorTest, TheServicesDeathIsSaid) {
  Bench bench(1, /*hosts=*/true);
  bench.Join();
  bench.Assign(1);
  bench.Feed(ServiceExited{"was killed by SIGKILL"});
  EXPECT_THAT(bench.told_, HasSubstr("was killed by SIGKILL"));
  EXPECT_TRUE(bench.Effect<SignalGroup>().has_value());
}

TEST(SupervisorTest, AVerdictStopsWhatStillRuns) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.FeedMessage(
      rendezvous::Verdict{.outcome = rendezvous::Outcome::kFailed, .reason = "spent"});
  EXPECT_TRUE(bench.Effect<SignalGroup>().has_value());
  bench.Advance(absl::Seconds(30));
  EXPECT_TRUE(bench.Effect<SweepGroup>().has_value());
  bench.End(1, 0, 0, SIGKILL);
  bench.Empty(1);
  bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  EXPECT_EQ(bench.exit_->status, 1);
}

TEST(SupervisorTest, ProcessesThatOutliveKillMakeTheNodeUnclean) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.FeedMessage(rendezvous::StopWorkers{Generation(1), "grow"});
  bench.Advance(absl::Seconds(30));
  bench.Advance(absl::Seconds(5));
  EXPECT_THAT(bench.told_, HasSubstr("5 s after SIGKILL"));
  bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  ASSERT_TRUE(bench.exit_.has_value());
  EXPECT_EQ(bench.exit_->status, 1);
}

TEST(SupervisorTest, StandbyIsToldWhenItLasts) {
  Bench bench;
  bench.Join();
  bench.FeedMessage(rendezvous::Standby{.reason = "1 of 2 nodes have joined"});
  EXPECT_EQ(bench.told_, "");
  bench.FeedMessage(rendezvous::Probe{.nonce = 1});
  bench.Advance(absl::Seconds(1));
  EXPECT_THAT(bench.told_, HasSubstr("1 of 2 nodes have joined"));
}

rendezvous::HangReport Suspicion(bool suspect) {
  return {.workers = {{.local_rank = 1, .suspect = suspect}}, .sample = absl::Milliseconds(250)};
}

WorkerEnd Hung(Instant seen) {
  WorkerEnd end;
  end.local_rank = 1;
  end.pid = 11;
  end.signal = SIGKILL;
  end.hung = true;
  end.message = "no progress in train, step 7";
  end.seen = seen;
  return end;
}

TEST(SupervisorTest, TellsTheServiceWhatALookHasShown) {
  Bench bench;
  bench.Join();
  bench.Assign(1);
  bench.Feed(ProgressFound{Generation(1), Suspicion(true)});
  ASSERT_TRUE(bench.Sent<rendezvous::HangReport>().has_value());
  EXPECT_TRUE(bench.Sent<rendezvous::HangReport>()->any_suspect());
  bench.Feed(ProgressFound{Generation(7), Suspicion(true)});
  EXPECT_FALSE(bench.Sent<rendezvous::HangReport>().has_value()) << "of another generation";
}

TEST(SupervisorTest, LooksWhenItIsAsked) {
  Bench bench;
  bench.Join();
  bench.FeedMessage(rendezvous::ReportProgress{Generation(1), absl::Seconds(1)});
  EXPECT_FALSE(bench.Effect<LookAtWorkers>().has_value()) << "no workers";
  bench.Assign(1);
  bench.FeedMessage(rendezvous::ReportProgress{Generation(1), absl::Seconds(1)});
  ASSERT_TRUE(bench.Effect<LookAtWorkers>().has_value());
  EXPECT_EQ(bench.Effect<LookAtWorkers>()->sample, absl::Seconds(1));
}

TEST(SupervisorTest, AHungWorkerIsAFailureAndItsNodeIsKilledAtOnce) {
  Bench bench;
  bench.Join();
  bench.Assign(1);
  bench.FeedMessage(rendezvous::HungWorkers{Generation(1), {1}, "it waits", false});
  ASSERT_TRUE(bench.Effect<HandleHungWorkers>().has_value());
  EXPECT_FALSE(bench.Effect<HandleHungWorkers>()->end) << "a suspicion";
  bench.FeedMessage(rendezvous::HungWorkers{Generation(1), {1}, "stopped by a signal", true});
  const auto order = bench.Effect<HandleHungWorkers>();
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->local_ranks, std::vector<uint32_t>{1});
  EXPECT_EQ(order->evidence, "stopped by a signal");
  EXPECT_TRUE(order->end);
  bench.Feed(WorkerEnded{Generation(1), Hung(Instant())});
  const auto failed = bench.Sent<rendezvous::WorkerFailed>();
  ASSERT_TRUE(failed.has_value());
  EXPECT_TRUE(failed->failure.hung);
  EXPECT_EQ(failed->failure.rank, 3U);
  EXPECT_FALSE(bench.Effect<SignalGroup>().has_value()) << "no grace for what hangs";
  EXPECT_TRUE(bench.Effect<SweepGroup>().has_value());
  EXPECT_THAT(bench.told_, HasSubstr("hangs: no progress in train, step 7"));
  bench.End(1, 1, 0, SIGKILL);  // the real end of it
  bench.End(1, 0, 0, SIGKILL);
  bench.Empty(1);
  ASSERT_TRUE(bench.Sent<rendezvous::GroupStopped>().has_value());
  EXPECT_EQ(bench.Sent<rendezvous::GroupStopped>()->failures.size(), 1U);
}

TEST(SupervisorTest, ANodeWithASuspectIsKilledAtOnceAndOthersGetTheirGrace) {
  for (const bool suspect : {true, false}) {
    Bench bench;
    bench.Join();
    bench.Assign(1);
    bench.Feed(ProgressFound{Generation(1), Suspicion(true)});
    bench.Feed(ProgressFound{Generation(1), Suspicion(suspect)});
    bench.FeedMessage(rendezvous::StopWorkers{Generation(1), "worker rank 7 on b hung"});
    EXPECT_EQ(bench.Effect<SweepGroup>().has_value(), suspect);
    EXPECT_EQ(bench.Effect<SignalGroup>().has_value(), !suspect);
  }
}

TEST(SupervisorTest, AStoppedWorkerIsToldAndEndedOnlyOnRequest) {
  SupervisorConfig config = Bench::Config(2);
  for (const bool restart : {false, true}) {
    config.restart_stopped = restart;
    Bench bench(config);
    bench.Join();
    bench.Assign(1);
    bench.Feed(WorkerSuspended{Generation(1), 1, 11, SIGSTOP});
    EXPECT_THAT(bench.told_, HasSubstr("worker rank 3 (pid 11) was stopped by SIGSTOP"));
    EXPECT_EQ(bench.Effect<HandleHungWorkers>().has_value(), restart);
    EXPECT_THAT(bench.told_, HasSubstr(restart ? "--on_stopped restart" : "kill -CONT 11"));
  }
}

}  // namespace
}  // namespace ddprun::launcher
