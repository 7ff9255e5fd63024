// What an agent does on a signal: docs/SIGNALS.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/unit/launcher/core/supervisor_bench.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Generation;

TEST(SupervisorTest, SignalsBeforeWorkersHaveTheShellsStatus) {
  for (const int number : {SIGINT, SIGTERM}) {
    Bench bench;
    bench.Feed(SignalReceived{number});
    ASSERT_TRUE(bench.exit_.has_value());
    EXPECT_EQ(bench.exit_->status, 128 + number);
  }
}

TEST(SupervisorTest, CtrlCEndsTheWholeJobAndASecondOneKills) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.Feed(SignalReceived{SIGINT});
  ASSERT_TRUE(bench.Sent<rendezvous::Leave>().has_value());
  EXPECT_TRUE(bench.Sent<rendezvous::Leave>()->end_job);
  EXPECT_EQ(bench.Effect<SignalGroup>()->signal, SIGINT);
  bench.Feed(SignalReceived{SIGINT});  // to the process, and to its group: one stop
  EXPECT_FALSE(bench.Effect<SweepGroup>().has_value());
  bench.Advance(absl::Milliseconds(250));
  bench.Feed(SignalReceived{SIGINT});
  EXPECT_TRUE(bench.Effect<SweepGroup>().has_value());
  bench.End(1, 0, 0, SIGKILL);
  bench.Empty(1);
  bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  ASSERT_TRUE(bench.exit_.has_value());
  EXPECT_EQ(bench.exit_->status, 1);
}

TEST(SupervisorTest, CtrlCBetweenJoinAndWelcomeStillLeaves) {
  Bench bench(1, /*hosts=*/true);
  bench.Feed(StreamOpened{});
  bench.Feed(SignalReceived{SIGINT});
  EXPECT_FALSE(bench.Effect<FinishStream>().has_value());
  bench.FeedMessage(rendezvous::Welcome{.term = rendezvous::Term(9)});
  ASSERT_TRUE(bench.Sent<rendezvous::Leave>().has_value());
  EXPECT_TRUE(bench.Sent<rendezvous::Leave>()->end_job);
  EXPECT_TRUE(bench.Effect<FinishStream>().has_value());
  bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  bench.Feed(ServiceExited{"exited with status 0"});
  EXPECT_EQ(bench.exit_->status, 130);
}

TEST(SupervisorTest, CtrlCDoesNotWaitForAWelcomeForEver) {
  Bench bench(1);
  bench.Feed(StreamOpened{});
  bench.Feed(SignalReceived{SIGINT});
  EXPECT_FALSE(bench.exit_.has_value());
  bench.Advance(absl::Seconds(2));
  EXPECT_EQ(bench.exit_->status, 130);
}

// Seed 11493 of the simulation: the timer was due for ever.
TEST(SupervisorTest, AnUncleanAgentWithoutAWelcomeStillEnds) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.Feed(SignalReceived{SIGTERM});
  bench.Feed(ServiceStreamClosed{absl::UnavailableError("cut"), /*will_retry=*/true});
  bench.Feed(StreamOpened{});
  for (const int seconds : {30, 5, 2}) {  // the grace, the sweep's bound and the goodbye's
    EXPECT_FALSE(bench.exit_.has_value());
    bench.Advance(absl::Seconds(seconds));
  }
  ASSERT_TRUE(bench.exit_.has_value());
  EXPECT_EQ(bench.exit_->status, 1);
}

TEST(SupervisorTest, TermAtOneNodeLeavesAfterItsWorkers) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.Feed(SignalReceived{SIGTERM});
  EXPECT_FALSE(bench.Sent<rendezvous::Leave>().has_value());
  // The others fail meanwhile; the answer to that is that we leave.
  bench.FeedMessage(rendezvous::StopWorkers{Generation(1), "rank 0 failed"});
  bench.End(1, 0, 1);
  bench.Empty(1);
  EXPECT_FALSE(bench.Sent<rendezvous::GroupStopped>().has_value());
  ASSERT_TRUE(bench.Sent<rendezvous::Leave>().has_value());
  EXPECT_FALSE(bench.Sent<rendezvous::Leave>()->end_job);
  EXPECT_TRUE(bench.Effect<FinishStream>().has_value());
}

TEST(SupervisorTest, UserSignalsGoToTheWorkers) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.Feed(SignalReceived{SIGUSR1});
  EXPECT_EQ(bench.Effect<SignalGroup>()->signal, SIGUSR1);
  EXPECT_THAT(bench.Effect<Record>()->fields,
              testing::Contains(testing::Pair("action", "passed_on")));
  EXPECT_FALSE(bench.exit_.has_value());
}

TEST(SupervisorTest, UserSignalsWithoutWorkersAreOnlyNoted) {
  Bench bench(1);
  bench.Join();
  for (const int number : PassedOnSignals()) {
    bench.Feed(SignalReceived{number});
    ASSERT_THAT(bench.effects_, testing::ElementsAre(testing::VariantWith<Record>(testing::_)));
    EXPECT_THAT(std::get<Record>(bench.effects_[0]).fields,
                testing::Contains(testing::Pair("action", "dropped")));
  }
}

TEST(SupervisorTest, AListedSignalEndsAndItsTwinIsPassedOn) {
  for (const bool listed : {true, false}) {
    SupervisorConfig config = Bench::Config(1);
    if (listed) config.signals.ending.insert(SIGUSR1);
    Bench bench(config);
    bench.Join();
    bench.Assign(1);
    bench.Feed(SignalReceived{SIGUSR1});
    EXPECT_EQ(bench.Effect<SignalGroup>()->signal, SIGUSR1);
    bench.End(1, 0, 0, SIGUSR1);
    EXPECT_EQ(bench.Effect<SweepGroup>().has_value(), true);
    bench.Empty(1);
    // A worker that died of a signal that was only passed on has failed by itself.
    EXPECT_EQ(bench.Sent<rendezvous::Leave>().has_value(), listed);
    EXPECT_EQ(bench.Sent<rendezvous::GroupStopped>().has_value(), !listed);
  }
}

TEST(SupervisorTest, ASignalWhileTheGroupStopsKeepsTheGraceAndASecondOneEndsIt) {
  Bench bench(2);
  bench.Join();
  bench.Assign(1);
  bench.End(1, 0, 3);  // the restart begins: TERM to the other worker
  bench.Feed(SignalReceived{SIGTERM});
  EXPECT_FALSE(bench.Effect<SignalGroup>().has_value());
  EXPECT_FALSE(bench.Effect<SweepGroup>().has_value());
  bench.Feed(SignalReceived{SIGINT});
  EXPECT_TRUE(bench.Effect<SweepGroup>().has_value());
  bench.End(1, 1, 0, SIGKILL);
  bench.Empty(1);
  EXPECT_TRUE(bench.Sent<rendezvous::Leave>().has_value());
  bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  EXPECT_EQ(bench.exit_->status, 1);
}

TEST(SupervisorTest, TheExitStatusOfAFailedJobIsTheFirstCausesWhenAskedFor) {
  rendezvous::WorkerFailure code;
  code.exit_code = 7;
  rendezvous::WorkerFailure killed;
  killed.signal = SIGKILL;
  rendezvous::WorkerFailure not_started;
  not_started.start_error = "exec";
  const struct {
    bool asked;
    std::vector<rendezvous::WorkerFailure> failures;
    int status;
  } kCases[] = {{true, {code, killed}, 7},
                {false, {code, killed}, 1},
                {true, {killed, code}, 128 + SIGKILL},
                {true, {not_started}, 1},
                {true, {}, 1}};
  for (const auto& c : kCases) {
    SupervisorConfig config = Bench::Config(1);
    config.ending.with_first_cause = c.asked;
    Bench bench(config);
    bench.Join();
    bench.FeedMessage(rendezvous::Verdict{.outcome = rendezvous::Outcome::kFailed,
                                          .failures = c.failures,
                                          .first_causes = c.failures.empty() ? 0U : 1U});
    bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
    ASSERT_TRUE(bench.exit_.has_value());
    EXPECT_EQ(bench.exit_->status, c.status);
  }
}

TEST(SupervisorTest, TheExitStatusTellsASchedulerWhatToDo) {
  using rendezvous::Outcome;
  rendezvous::WorkerFailure code;
  code.exit_code = 7;
  const std::pair<Outcome, int> kCases[] = {{Outcome::kSucceeded, 0},
                                            {Outcome::kFailed, 7},
                                            {Outcome::kFailedForGood, 93},
                                            {Outcome::kPreempted, 75},
                                            {Outcome::kStopped, 1}};
  for (const auto& [outcome, status] : kCases) {
    SupervisorConfig config = Bench::Config(1);
    config.ending.with_first_cause = true;
    Bench bench(config);
    bench.Join();
    const bool failed = outcome == Outcome::kFailed || outcome == Outcome::kFailedForGood;
    bench.FeedMessage(rendezvous::Verdict{
        .outcome = outcome, .failures = {code}, .first_causes = failed ? 1U : 0U});
    bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
    ASSERT_TRUE(bench.exit_.has_value());
    EXPECT_EQ(bench.exit_->status, status);
  }
}

TEST(SupervisorTest, APreemptedAgentWithoutWorkersHasAStatusOfItsOwn) {
  for (const bool preempts : {true, false}) {
    SupervisorConfig config = Bench::Config(1);
    (preempts ? config.signals.preempting : config.signals.ending).insert(SIGUSR2);
    Bench bench(config);
    bench.Join();
    bench.Feed(SignalReceived{SIGUSR2});
    ASSERT_TRUE(bench.Sent<rendezvous::Leave>().has_value());
    EXPECT_EQ(bench.Sent<rendezvous::Leave>()->preempted, preempts);
    bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
    ASSERT_TRUE(bench.exit_.has_value());
    EXPECT_EQ(bench.exit_->status, preempts ? 75 : 128 + SIGUSR2);
  }
}

TEST(SupervisorTest, TheConsoleSaysWhichRestartAndByWhichRule) {
  const std::tuple<uint32_t, uint32_t, const char*> kCases[] = {
      {2, 2, "restart 2 of 3 (worker rank 0 on h exited with code 1; rule backoff)"},
      {7, 2, "restart 7, 2 of 3 charged (worker rank 0 on h exited with code 1; "}};
  for (const auto& [count, charged, text] : kCases) {
    Bench bench(1);
    bench.Join();
    rendezvous::Assignment assignment;
    assignment.generation = Generation(2);
    assignment.restart_count = count;
    assignment.restarts_charged = charged;
    assignment.reason = "worker rank 0 on h exited with code 1";
    assignment.rule = "backoff";
    bench.FeedMessage(assignment);
    EXPECT_THAT(bench.told_, testing::HasSubstr(text));
  }
}

TEST(SignalPolicyTest, WatchesWhatItNamesAndWhatIsPassedOn) {
  SignalPolicy policy;
  policy.ending = {SIGUSR1};
  const std::vector<int> watched = WatchedSignals(policy);
  EXPECT_THAT(watched, testing::Contains(SIGUSR1));
  EXPECT_THAT(watched, testing::Contains(SIGUSR2));
  EXPECT_THAT(watched, testing::Contains(SIGRTMAX));
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGKILL, SIGSEGV, SIGCHLD}) {
    EXPECT_THAT(watched, testing::Not(testing::Contains(number))) << number;
  }
  EXPECT_THAT(WatchedSignals(SignalPolicy()), testing::IsSupersetOf({SIGTERM, SIGINT, SIGHUP}));
}

}  // namespace
}  // namespace ddprun::launcher
