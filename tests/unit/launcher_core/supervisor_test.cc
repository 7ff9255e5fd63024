#include "launcher/core/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Generation;
using ::testing::HasSubstr;

// One supervisor on a clock of the test's; remembers the effects of the last step by kind.
class Bench {
 public:
  explicit Bench(uint32_t workers = 2, bool hosts = false)
      : supervisor_(Config(workers), Instant()) {
    Feed(EndpointFound{.node_address = "10.0.0.1",
                       .store_address = "10.0.0.1:7",
                       .hosts_service = hosts,
                       .hosts_endpoint = hosts});
  }

  static SupervisorConfig Config(uint32_t workers) {
    SupervisorConfig config;
    config.job.run_id = "job";
    config.job.max_restarts = 3;
    config.node_id = rendezvous::NodeId("a");
    config.incarnation = rendezvous::Incarnation(1);
    config.node.worker_count = workers;
    config.endpoint = "host0:29400";
    return config;
  }

  void Advance(absl::Duration by) {
    now_ = now_ + by;
    while (supervisor_.NextDeadline() <= now_) Feed(TimerFired{});
  }

  void Feed(const SupervisorEvent& event) {
    effects_ = supervisor_.Step(now_, event);
    for (const SupervisorEffect& effect : effects_) {
      if (const auto* told = std::get_if<TellUser>(&effect)) told_ += told->text + "\n";
      if (const auto* exit = std::get_if<Exit>(&effect)) exit_ = *exit;
    }
  }

  void Join(uint64_t processed = 0) {
    Feed(StreamOpened{});
    FeedMessage(rendezvous::Welcome{.term = rendezvous::Term(9),
                                    .release = "x",
                                    .lease = absl::Seconds(5),
                                    .processed_sequence = processed});
  }

  void FeedMessage(rendezvous::ServiceMessage message) {
    Feed(ServiceMessageReceived{std::move(message)});
  }

  void Assign(uint64_t generation) {
    rendezvous::Assignment assignment;
    assignment.generation = Generation(generation);
    assignment.world_size = 4;
    assignment.group_world_size = 2;
    assignment.base_rank = 2;
    FeedMessage(assignment);
  }

  void End(uint64_t generation, uint32_t local_rank, int exit_code, int signal = 0) {
    WorkerEnd end;
    end.local_rank = local_rank;
    end.pid = 100;
    end.exit_code = exit_code;
    end.signal = signal;
    end.seen = now_;
    Feed(WorkerEnded{Generation(generation), end});
  }

  void Empty(uint64_t generation) { Feed(GroupEmpty{Generation(generation), 4242}); }

  template <typename T>
  std::optional<T> Effect() const {
    for (const SupervisorEffect& effect : effects_) {
      if (const auto* found = std::get_if<T>(&effect)) return *found;
    }
    return std::nullopt;
  }

  // The body of the first message of that kind among the effects.
  template <typename T>
  std::optional<T> Sent() const {
    for (const SupervisorEffect& effect : effects_) {
      const auto* send = std::get_if<SendMessage>(&effect);
      if (send == nullptr) continue;
      if (const auto* body = std::get_if<T>(&send->message.body)) return *body;
    }
    return std::nullopt;
  }

  Supervisor supervisor_;
  Instant now_;
  std::vector<SupervisorEffect> effects_;
  std::string told_;
  std::optional<Exit> exit_;
};

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
  bench.Advance(absl::Seconds(9.9));
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
  bench.Advance(absl::Seconds(5));
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

TEST(SupervisorTest, ARefusalEndsTheAgent) {
  Bench bench;
  bench.Feed(StreamOpened{});
  bench.Feed(ServiceStreamClosed{absl::AlreadyExistsError("node rank 0 is held by host1"), false});
  ASSERT_TRUE(bench.exit_.has_value());
  EXPECT_EQ(bench.exit_->status, 1);
  EXPECT_THAT(bench.told_, HasSubstr("node rank 0 is held by host1"));
}

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

TEST(SupervisorTest, UserSignalsGoToTheWorkers) {
  Bench bench(1);
  bench.Join();
  bench.Assign(1);
  bench.Feed(SignalReceived{SIGUSR1});
  EXPECT_EQ(bench.Effect<SignalGroup>()->signal, SIGUSR1);
  EXPECT_FALSE(bench.exit_.has_value());
}

TEST(SupervisorTest, StandbyIsToldWhenItLasts) {
  Bench bench;
  bench.Join();
  bench.FeedMessage(rendezvous::Standby{.reason = "1 of 2 nodes are here"});
  EXPECT_EQ(bench.told_, "");
  bench.FeedMessage(rendezvous::Probe{.nonce = 1});
  bench.Advance(absl::Seconds(1));
  EXPECT_THAT(bench.told_, HasSubstr("1 of 2 nodes are here"));
}

}  // namespace
}  // namespace ddprun::launcher
