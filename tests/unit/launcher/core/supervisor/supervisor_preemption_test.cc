// What an agent does when its node is about to be taken away (R14).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/unit/launcher/core/supervisor_bench.h"

namespace ddprun::launcher {
namespace {

using rendezvous::CommitStop;
using rendezvous::Generation;
using rendezvous::GroupStopped;
using rendezvous::Leave;
using rendezvous::Preempt;
using rendezvous::PrepareStop;
using rendezvous::StopLook;
using rendezvous::StopPrepared;
using rendezvous::StopWorkers;

SupervisorConfig PreemptConfig(uint32_t workers) {
  SupervisorConfig config = Bench::Config(workers);
  config.signals.preempting = {SIGUSR2};
  config.preemption.deadline = absl::Seconds(20);
  config.service.loss = config.service.loss_without_workers = absl::Hours(1);
  return config;
}

// One worker of generation 1 runs.
class SupervisorPreemptionTest : public ::testing::Test {
 protected:
  explicit SupervisorPreemptionTest(uint32_t workers = 1) : bench_(PreemptConfig(workers)) {
    bench_.Join();
    bench_.Assign(1);
    for (uint32_t i = 0; i < workers; ++i) bench_.Feed(WorkerStarted{Generation(1), i, 100 + i});
  }
  void Host() {
    bench_.Feed(
        EndpointFound{.node_address = "10.0.0.1", .store_address = "", .hosts_service = true});
  }
  void Commit(uint64_t step) {
    bench_.FeedMessage(CommitStop{.generation = Generation(1),
                                  .step = step,
                                  .within = absl::Seconds(20),
                                  .reason = "host1 is preempted"});
  }
  void Looked(bool all_stopped) {
    bench_.Feed(StopStepLooked{.generation = Generation(1),
                               .round = 0,
                               .look = {.heeds = true, .below = true, .highest = 17},
                               .all_stopped = all_stopped});
  }
  void Empty(uint64_t stopped_at) {
    bench_.Feed(GroupEmpty{Generation(1), 4242, stopped_at, stopped_at});
  }

  Bench bench_;
};

class TwoWorkers : public SupervisorPreemptionTest {
 protected:
  TwoWorkers() : SupervisorPreemptionTest(2) {}
};

TEST_F(SupervisorPreemptionTest, AsksForAStepAndDoesNothingToTheWorkersUntilItIsAgreed) {
  bench_.Feed(SignalReceived{SIGUSR2});
  ASSERT_TRUE(bench_.Sent<Preempt>().has_value());
  EXPECT_EQ(bench_.Sent<Preempt>()->reason, "SIGUSR2");
  EXPECT_EQ(bench_.Sent<Preempt>()->deadline, absl::Seconds(20));
  EXPECT_FALSE(bench_.Sent<Preempt>()->ends_job);
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
  bench_.FeedMessage(PrepareStop{Generation(1), 2, 18});
  ASSERT_TRUE(bench_.Effect<LookAtStopStep>().has_value());
  EXPECT_EQ(bench_.Effect<LookAtStopStep>()->step, 18U);
  const StopLook look{.heeds = true, .below = true, .highest = 17};
  bench_.Feed(StopStepLooked{Generation(1), 2, look, false});
  ASSERT_TRUE(bench_.Sent<StopPrepared>().has_value());
  EXPECT_EQ(bench_.Sent<StopPrepared>()->round, 2U);
  EXPECT_EQ(bench_.Sent<StopPrepared>()->look, look);
  Commit(18);
  EXPECT_EQ(bench_.Effect<CommitStopStep>()->step, 18U);
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
  bench_.End(1, 0, 0);
  Empty(18);
  EXPECT_FALSE(bench_.Sent<rendezvous::GroupSucceeded>().has_value());
  ASSERT_TRUE(bench_.Sent<Leave>().has_value());
  EXPECT_TRUE(bench_.Sent<Leave>()->preempted);
  EXPECT_FALSE(bench_.Sent<Leave>()->end_job);
  bench_.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  EXPECT_EQ(bench_.exit_->status, 75);
}

TEST_F(SupervisorPreemptionTest, OtherNodesStopAtTheStepAndStay) {
  Commit(18);
  bench_.End(1, 0, 0);
  Empty(18);
  EXPECT_TRUE(bench_.Sent<GroupStopped>().has_value());
  EXPECT_FALSE(bench_.Effect<EndGeneration>().has_value()) << "others may need the stores to save";
  bench_.Assign(2);
  EXPECT_TRUE(bench_.Effect<SpawnGroup>().has_value());
}

TEST_F(SupervisorPreemptionTest, TheNodeOfTheServiceWaitsForTheOthersAndTheVerdict) {
  Host();
  bench_.Feed(SignalReceived{SIGUSR2});
  EXPECT_TRUE(bench_.Sent<Preempt>()->ends_job);
  Commit(18);
  bench_.End(1, 0, 0);
  Empty(18);
  EXPECT_TRUE(bench_.Sent<GroupStopped>().has_value());
  EXPECT_FALSE(bench_.Sent<Leave>().has_value());
  bench_.FeedMessage(rendezvous::Verdict{.outcome = rendezvous::Outcome::kPreempted});
  bench_.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  bench_.Feed(ServiceExited{"exited with status 0"});
  EXPECT_EQ(bench_.exit_->status, 75);
}

TEST_F(SupervisorPreemptionTest, TheNodeOfTheServiceDoesNotCutOffOthersThatSave) {
  Host();
  Commit(18);
  bench_.End(1, 0, 0);
  Empty(18);
  bench_.Feed(SignalReceived{SIGUSR2});
  EXPECT_TRUE(bench_.Sent<Preempt>()->ends_job);
  EXPECT_FALSE(bench_.Sent<Leave>().has_value());
  bench_.Advance(absl::Seconds(20));
  EXPECT_TRUE(bench_.Sent<Leave>()->end_job) << "but it doesn't wait for ever";
}

TEST_F(SupervisorPreemptionTest, WorkersThatAreStartingHaveNothingToSave) {
  Bench bench(PreemptConfig(2));
  bench.Join();
  bench.Assign(1);
  bench.Feed(WorkerStarted{Generation(1), 0, 100});
  bench.FeedMessage(PrepareStop{Generation(1), 1, 0});
  EXPECT_FALSE(bench.Effect<LookAtStopStep>().has_value());
  EXPECT_FALSE(bench.Sent<StopPrepared>()->look.heeds);
}

TEST_F(SupervisorPreemptionTest, AJobThatEndsBeforeTheStepHasSucceeded) {
  Commit(18);
  bench_.End(1, 0, 0);
  Empty(0);
  EXPECT_TRUE(bench_.Sent<rendezvous::GroupSucceeded>().has_value());
}

TEST_F(SupervisorPreemptionTest, ASecondSignalDoesNotWaitForTheStepAndAThirdKills) {
  bench_.Feed(SignalReceived{SIGUSR2});
  bench_.Advance(absl::Seconds(1));
  bench_.Feed(SignalReceived{SIGUSR2});
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGUSR2);
  bench_.Advance(absl::Seconds(1));
  bench_.Feed(SignalReceived{SIGUSR2});
  EXPECT_TRUE(bench_.Effect<SweepGroup>().has_value());
  bench_.End(1, 0, 0, SIGKILL);
  bench_.Empty(1);
  EXPECT_TRUE(bench_.Sent<Leave>()->preempted);
}

TEST_F(SupervisorPreemptionTest, AnEndingSignalEndsTheAgreement) {
  bench_.Feed(SignalReceived{SIGUSR2});
  bench_.Feed(SignalReceived{SIGINT});
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGINT);
  EXPECT_TRUE(bench_.Sent<Leave>()->end_job);
}

TEST_F(SupervisorPreemptionTest, APlainStopIsTheSignalThatCame) {
  bench_.Feed(SignalReceived{SIGUSR2});
  bench_.FeedMessage(StopWorkers{Generation(1), "host1 is preempted"});
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGUSR2);
  bench_.Advance(absl::Seconds(29));
  EXPECT_FALSE(bench_.Effect<SweepGroup>().has_value());
  bench_.Advance(absl::Seconds(1));
  EXPECT_TRUE(bench_.Effect<SweepGroup>().has_value());
  bench_.Empty(1);
  EXPECT_FALSE(bench_.Sent<GroupStopped>().has_value());
  EXPECT_TRUE(bench_.Sent<Leave>()->preempted);
}

TEST_F(SupervisorPreemptionTest, WithoutAnAnswerForHalfTheDeadlineTheWorkersGetTheSignal) {
  bench_.Feed(SignalReceived{SIGUSR2});
  bench_.Feed(ServiceStreamClosed{absl::UnavailableError("reset"), true});
  bench_.Feed(TimerFired{});
  bench_.Advance(absl::Milliseconds(9900));
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
  bench_.Advance(absl::Milliseconds(100));
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGUSR2);
}

TEST_F(SupervisorPreemptionTest, WithoutAServiceToAskTheWorkersGetTheSignalAtOnce) {
  bench_.Feed(ServiceStreamClosed{absl::UnavailableError("reset"), true});
  bench_.Feed(SignalReceived{SIGUSR2});
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGUSR2);
}

TEST_F(SupervisorPreemptionTest, WhoIsNotAtTheStepAfterHalfTheTimeIsStopped) {
  Commit(18);
  bench_.Advance(absl::Seconds(10));
  EXPECT_EQ(bench_.Effect<LookAtStopStep>()->round, 0U);
  Looked(/*all_stopped=*/false);
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGTERM);
}

TEST_F(SupervisorPreemptionTest, WhoSavesHasTheWholeDeadline) {
  Commit(18);
  bench_.Advance(absl::Seconds(10));
  Looked(/*all_stopped=*/true);
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
  bench_.Advance(absl::Milliseconds(9900));
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
  bench_.Advance(absl::Milliseconds(100));
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGTERM);
}

TEST_F(TwoWorkers, AFailureOnTheWayStopsTheOtherUnlessItSaves) {
  Commit(18);
  bench_.End(1, 0, 1);
  EXPECT_TRUE(bench_.Sent<rendezvous::WorkerFailed>().has_value());
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
  bench_.Advance(absl::Milliseconds(250));
  EXPECT_TRUE(bench_.Effect<LookAtStopStep>().has_value());
  Looked(true);
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
  bench_.FeedMessage(StopWorkers{Generation(1), "rank 0 failed"});
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
  bench_.Advance(absl::Milliseconds(250));
  EXPECT_TRUE(bench_.Effect<LookAtStopStep>().has_value());
  Looked(false);
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGTERM);
}

TEST_F(TwoWorkers, AFailureBeforeTheAgreementRestartsAndThePreemptedNodeLeaves) {
  bench_.Feed(SignalReceived{SIGUSR2});
  bench_.End(1, 0, 1);
  EXPECT_TRUE(bench_.Sent<rendezvous::WorkerFailed>().has_value());
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGTERM);
  bench_.FeedMessage(StopWorkers{Generation(1), "rank 2 failed"});
  bench_.End(1, 1, 0, SIGTERM);
  bench_.Empty(1);
  EXPECT_TRUE(bench_.Sent<Leave>()->preempted);
  bench_.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  EXPECT_EQ(bench_.exit_->status, 75);
}

TEST_F(SupervisorPreemptionTest, DuringARestartItLeavesWhenItsWorkersAreGone) {
  bench_.FeedMessage(StopWorkers{Generation(1), "rank 0 failed"});
  bench_.Feed(SignalReceived{SIGUSR2});
  EXPECT_FALSE(bench_.Sent<Preempt>().has_value());
  EXPECT_FALSE(bench_.Sent<Leave>().has_value());
  bench_.End(1, 0, 0, SIGTERM);
  bench_.Empty(1);
  EXPECT_TRUE(bench_.Sent<Leave>()->preempted);
}

TEST_F(SupervisorPreemptionTest, BetweenGenerationsItLeavesAtOnce) {
  bench_.FeedMessage(StopWorkers{Generation(1), "rank 0 failed"});
  bench_.End(1, 0, 0, SIGTERM);
  bench_.Empty(1);
  bench_.Feed(SignalReceived{SIGUSR2});
  ASSERT_TRUE(bench_.Sent<Leave>().has_value());
  EXPECT_TRUE(bench_.Sent<Leave>()->preempted);
  EXPECT_FALSE(bench_.Sent<Leave>()->end_job);
  bench_.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  EXPECT_EQ(bench_.exit_->status, 75);
}

// ------------------------------------------------------------- SIGTERM that nobody listed

class PlainTermTest : public ::testing::Test {
 protected:
  PlainTermTest() : bench_(Config()) {
    bench_.Join();
    bench_.Assign(1);
  }
  static SupervisorConfig Config() {
    SupervisorConfig config = PreemptConfig(1);
    config.signals.term_preempts_who_asks = true;
    return config;
  }
  void Start() { bench_.Feed(WorkerStarted{Generation(1), 0, 100}); }
  void Answer(bool heeds) {
    bench_.Feed(StopStepLooked{Generation(1), 0, {.heeds = heeds, .below = true}, false});
  }
  void Leave75() {
    ASSERT_TRUE(bench_.Sent<Leave>().has_value());
    EXPECT_TRUE(bench_.Sent<Leave>()->preempted);
    bench_.Feed(ServiceStreamClosed{absl::OkStatus(), false});
    EXPECT_EQ(bench_.exit_->status, 75);
  }

  Bench bench_;
};

TEST_F(PlainTermTest, PreemptsWorkersThatAsk) {
  Start();
  bench_.Feed(SignalReceived{SIGTERM});
  ASSERT_TRUE(bench_.Effect<LookAtStopStep>().has_value());
  EXPECT_EQ(bench_.Effect<LookAtStopStep>()->step, 0U);
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
  Answer(/*heeds=*/true);
  EXPECT_EQ(bench_.Sent<Preempt>()->reason, "SIGTERM");
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
  bench_.FeedMessage(CommitStop{Generation(1), 18, absl::Seconds(20), "host1 is preempted"});
  bench_.End(1, 0, 0);
  bench_.Feed(GroupEmpty{Generation(1), 4242, 18, 18});
  Leave75();
}

TEST_F(PlainTermTest, EndsThoseThatDoNot) {
  Start();
  bench_.Feed(SignalReceived{SIGTERM});
  Answer(/*heeds=*/false);
  EXPECT_FALSE(bench_.Sent<Preempt>().has_value());
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGTERM);
  bench_.End(1, 0, 0, SIGTERM);
  bench_.Empty(1);
  EXPECT_FALSE(bench_.Sent<Leave>()->preempted);
  bench_.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  EXPECT_EQ(bench_.exit_->status, 1);
}

TEST_F(PlainTermTest, ASecondOneDoesNotWait) {
  Start();
  bench_.Feed(SignalReceived{SIGTERM});
  Answer(/*heeds=*/true);
  bench_.Advance(absl::Seconds(1));
  bench_.Feed(SignalReceived{SIGTERM});
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGTERM);
  bench_.End(1, 0, 0, SIGTERM);
  bench_.Empty(1);
  Leave75();
}

TEST_F(PlainTermTest, WorkersThatAreStartingAreAskedNothing) {
  bench_.Feed(SignalReceived{SIGTERM});
  EXPECT_FALSE(bench_.Effect<LookAtStopStep>().has_value());
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGTERM);
}

// What nobody waits for any more, because --preempt_after was quicker.
TEST_F(PlainTermTest, AnAnswerThatNobodyAskedForStopsNobody) {
  Start();
  Answer(/*heeds=*/false);
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
}

TEST_F(PlainTermTest, OtherEndingSignalsEnd) {
  Start();
  bench_.Feed(SignalReceived{SIGINT});
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGINT);
}

// TERM at all nodes, one of them when its workers have stopped for another one.
TEST_F(PlainTermTest, AfterTheStopStepThisNodeIsPreemptedToo) {
  Start();
  bench_.FeedMessage(CommitStop{Generation(1), 18, absl::Seconds(20), "host2 is preempted"});
  bench_.End(1, 0, 0);
  bench_.Feed(GroupEmpty{Generation(1), 4242, 18, 18});
  bench_.Feed(SignalReceived{SIGTERM});
  Leave75();
}

// ------------------------------------------------------------- --preempt_after

SupervisorConfig TimedConfig() {
  SupervisorConfig config = PreemptConfig(1);  // 20 s of deadline
  config.preemption.after = absl::Seconds(100);
  return config;
}

TEST(PreemptAfterTest, PreemptsWhenWhatIsLeftIsTheDeadline) {
  Bench bench(TimedConfig());
  bench.Join();
  bench.Assign(1);
  bench.Feed(WorkerStarted{Generation(1), 0, 100});
  bench.Advance(absl::Milliseconds(79900));
  EXPECT_FALSE(bench.Sent<Preempt>().has_value());
  bench.now_ = bench.now_ + absl::Milliseconds(100);
  bench.Feed(TimerFired{});
  ASSERT_TRUE(bench.Sent<Preempt>().has_value());
  EXPECT_EQ(bench.Sent<Preempt>()->reason, "its time is over (--preempt_after 1m40s)");
  EXPECT_FALSE(bench.Effect<SignalGroup>().has_value());
  bench.FeedMessage(StopWorkers{Generation(1), "nobody asks"});
  EXPECT_EQ(bench.Effect<SignalGroup>()->signal, SIGTERM);
  bench.End(1, 0, 0, SIGTERM);
  bench.Empty(1);
  EXPECT_TRUE(bench.Sent<Leave>()->preempted);
  bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  EXPECT_EQ(bench.exit_->status, 75);
}

TEST(PreemptAfterTest, WithoutWorkersItLeavesAtOnce) {
  Bench bench(TimedConfig());
  bench.Join();
  bench.now_ = bench.now_ + absl::Seconds(80);
  bench.Feed(TimerFired{});
  ASSERT_TRUE(bench.Sent<Leave>().has_value());
  EXPECT_TRUE(bench.Sent<Leave>()->preempted);
  bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  EXPECT_EQ(bench.exit_->status, 75);
}

TEST(PreemptAfterTest, SaysNothingToANodeThatEndsAnyhow) {
  Bench bench(TimedConfig());
  bench.Join();
  bench.Assign(1);
  bench.Feed(SignalReceived{SIGINT});
  bench.now_ = bench.now_ + absl::Seconds(80);
  bench.Feed(TimerFired{});
  EXPECT_FALSE(bench.Sent<Preempt>().has_value());
  EXPECT_FALSE(bench.Sent<Leave>().has_value());
}

TEST_F(SupervisorPreemptionTest, QuestionsOfAnotherGenerationAreIgnored) {
  bench_.FeedMessage(PrepareStop{Generation(7), 1, 0});
  EXPECT_FALSE(bench_.Effect<LookAtStopStep>().has_value());
  bench_.Feed(StopStepLooked{Generation(7), 1, {}, false});
  EXPECT_FALSE(bench_.Sent<StopPrepared>().has_value());
}

}  // namespace
}  // namespace ddprun::launcher
