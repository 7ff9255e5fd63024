// Workers that outlive their generation (R3): what the supervisor makes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/unit/launcher/core/supervisor_bench.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Generation;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Two workers of generation 1; those in `rejoining` can rejoin the next one.
class SupervisorRejoinTest : public ::testing::Test {
 protected:
  void Run(const std::vector<uint32_t>& rejoining) {
    bench_.Join();
    bench_.Assign(1);
    bench_.Feed(WorkerStarted{Generation(1), 0, 10});
    bench_.Feed(WorkerStarted{Generation(1), 1, 11});
    for (const uint32_t rank : rejoining) bench_.Feed(WorkerCanRejoin{Generation(1), rank});
  }
  void LetGo(uint64_t generation, uint32_t local_rank) {
    bench_.Feed(WorkerLetGo{Generation(generation), local_rank});
  }
  // Worker 1 is killed, and worker 0 goes on; generation 2 has begun.
  void KeepWorkerZero() {
    Run({0, 1});
    bench_.End(1, 1, 0, SIGKILL);
    LetGo(1, 0);
    bench_.Empty(1);
    bench_.Assign(2);
    bench_.Feed(WorkerStarted{Generation(2), 0, 10});
    bench_.Feed(WorkerStarted{Generation(2), 1, 12});
  }
  std::string Facts(const std::string& event) const {
    std::string text;
    for (const SupervisorEffect& effect : bench_.effects_) {
      const auto* record = std::get_if<Record>(&effect);
      if (record == nullptr || record->event != event) continue;
      for (const auto& [key, value] : record->fields) text += key + "=" + value + " ";
    }
    return text;
  }

  Bench bench_;
};

TEST_F(SupervisorRejoinTest, ASurvivorGoesOn) {
  Run({0, 1});
  bench_.End(1, 1, 0, SIGKILL);
  ASSERT_TRUE(bench_.Effect<SignalGroup>().has_value());
  EXPECT_THAT(bench_.Effect<SignalGroup>()->spared, ElementsAre(0));
  EXPECT_THAT(bench_.Effect<SignalGroup>()->why, HasSubstr("killed by SIGKILL"));
  ASSERT_TRUE(bench_.Effect<EndGeneration>().has_value()) << "it may wait for a key";
  LetGo(1, 0);
  ASSERT_TRUE(bench_.Effect<SweepGroup>().has_value());
  EXPECT_THAT(bench_.Effect<SweepGroup>()->spared, ElementsAre(0));
  bench_.Empty(1);
  ASSERT_TRUE(bench_.Sent<rendezvous::GroupStopped>().has_value());
  EXPECT_TRUE(bench_.Sent<rendezvous::GroupStopped>()->clean);
  bench_.Assign(2);
  EXPECT_THAT(bench_.Effect<SpawnGroup>()->kept, ElementsAre(0));
  EXPECT_THAT(bench_.told_, HasSubstr("; rank 2 (pid 10) goes on without a restart"));
  bench_.Feed(WorkerStarted{Generation(2), 0, 10});
  EXPECT_EQ(Facts("worker_kept"), "generation=2 local_rank=0 worker_pid=10 ");
  bench_.Feed(WorkerStarted{Generation(2), 1, 12});
  EXPECT_EQ(Facts("worker_kept"), "");
  EXPECT_TRUE(bench_.Sent<rendezvous::WorkersStarted>().has_value());
}

// Negative control: a worker that doesn't ask for the end is signaled, and all are started anew.
TEST_F(SupervisorRejoinTest, TwinAPlainWorkerIsStopped) {
  Run({});
  bench_.End(1, 1, 0, SIGKILL);
  EXPECT_THAT(bench_.Effect<SignalGroup>()->spared, IsEmpty());
  EXPECT_FALSE(bench_.Effect<EndGeneration>().has_value()) << "it may save";
  LetGo(1, 0);
  EXPECT_FALSE(bench_.Effect<SweepGroup>().has_value());
  bench_.End(1, 0, 0, SIGTERM);
  EXPECT_THAT(bench_.Effect<SweepGroup>()->spared, IsEmpty());
  bench_.Empty(1);
  bench_.Assign(2);
  EXPECT_THAT(bench_.Effect<SpawnGroup>()->kept, IsEmpty());
  EXPECT_THAT(bench_.told_, Not(HasSubstr("without a restart")));
}

TEST_F(SupervisorRejoinTest, WhoWasKeptIsKeptAgainWithoutAnotherWord) {
  KeepWorkerZero();
  bench_.FeedMessage(rendezvous::StopWorkers{Generation(2), "node b was lost"});
  EXPECT_THAT(bench_.Effect<SignalGroup>()->spared, ElementsAre(0));
  LetGo(2, 0);
  bench_.End(2, 1, 0, SIGTERM);
  EXPECT_THAT(bench_.Effect<SweepGroup>()->spared, ElementsAre(0));
}

TEST_F(SupervisorRejoinTest, WhoDoesNotLetGoIsKilled) {
  Run({0, 1});
  bench_.FeedMessage(rendezvous::StopWorkers{Generation(1), "node b was lost"});
  EXPECT_THAT(bench_.Effect<SignalGroup>()->spared, ElementsAre(0, 1));
  LetGo(1, 1);
  bench_.Advance(kLetGoBound - absl::Milliseconds(1));
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
  bench_.Advance(absl::Milliseconds(1));
  ASSERT_TRUE(bench_.Effect<SignalGroup>().has_value());
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGKILL);
  EXPECT_THAT(bench_.Effect<SignalGroup>()->spared, ElementsAre(1));
  EXPECT_EQ(Facts("let_go_late"),
            "generation=1 local_rank=0 worker_pid=10 waited_ms=5000 then=killed ");
  EXPECT_THAT(bench_.told_, HasSubstr("rank 2 (pid 10) has not let go of generation 1 within 5s"));
  LetGo(1, 0);  // too late
  EXPECT_FALSE(bench_.Effect<SweepGroup>().has_value());
  bench_.End(1, 0, 0, SIGKILL);
  EXPECT_THAT(bench_.Effect<SweepGroup>()->spared, ElementsAre(1));
}

TEST_F(SupervisorRejoinTest, OfAHangTheOthersGoOn) {
  Run({0, 1});
  WorkerEnd end;
  end.local_rank = 1;
  end.signal = SIGKILL;
  end.hung = true;
  bench_.Feed(WorkerEnded{Generation(1), end});
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGKILL);
  EXPECT_THAT(bench_.Effect<SignalGroup>()->spared, ElementsAre(0));
  LetGo(1, 0);
  EXPECT_THAT(bench_.Effect<SweepGroup>()->spared, ElementsAre(0));
}

TEST_F(SupervisorRejoinTest, AVerdictSparesNobody) {
  Run({0, 1});
  bench_.FeedMessage(rendezvous::Verdict{.outcome = rendezvous::Outcome::kFailed});
  EXPECT_THAT(bench_.Effect<SignalGroup>()->spared, IsEmpty());
  LetGo(1, 0);
  EXPECT_FALSE(bench_.Effect<SweepGroup>().has_value());
}

TEST_F(SupervisorRejoinTest, AVerdictWhileTheyLetGoSparesNobody) {
  Run({0, 1});
  bench_.FeedMessage(rendezvous::StopWorkers{Generation(1), "node b was lost"});
  LetGo(1, 0);
  bench_.FeedMessage(rendezvous::Verdict{.outcome = rendezvous::Outcome::kFailed});
  LetGo(1, 1);
  ASSERT_TRUE(bench_.Effect<SweepGroup>().has_value());
  EXPECT_THAT(bench_.Effect<SweepGroup>()->spared, IsEmpty());
}

TEST_F(SupervisorRejoinTest, AVerdictEndsWhoWaitsForTheNextGeneration) {
  Run({0, 1});
  bench_.End(1, 1, 0, SIGKILL);
  LetGo(1, 0);
  bench_.Empty(1);
  bench_.FeedMessage(rendezvous::Verdict{.outcome = rendezvous::Outcome::kFailed});
  ASSERT_TRUE(bench_.Effect<SweepGroup>().has_value());
  EXPECT_THAT(bench_.Effect<SweepGroup>()->spared, IsEmpty());
  EXPECT_FALSE(bench_.Effect<FinishStream>().has_value());
  bench_.End(1, 0, 0, SIGKILL);
  bench_.Empty(1);
  EXPECT_TRUE(bench_.Effect<FinishStream>().has_value());
}

TEST_F(SupervisorRejoinTest, AVerdictDuringTheSweepEndsThemAfterIt) {
  Run({0, 1});
  bench_.End(1, 1, 0, SIGKILL);
  LetGo(1, 0);
  bench_.FeedMessage(rendezvous::Verdict{.outcome = rendezvous::Outcome::kFailed});
  EXPECT_FALSE(bench_.Effect<SweepGroup>().has_value());
  bench_.Empty(1);
  ASSERT_TRUE(bench_.Effect<SweepGroup>().has_value());
  EXPECT_THAT(bench_.Effect<SweepGroup>()->spared, IsEmpty());
  bench_.Empty(1);
  EXPECT_TRUE(bench_.Effect<FinishStream>().has_value());
}

TEST_F(SupervisorRejoinTest, ANodeThatIsTakenAwayKeepsNobody) {
  Run({0, 1});
  bench_.FeedMessage(rendezvous::Drain{"rack 7"});
  bench_.FeedMessage(rendezvous::StopWorkers{Generation(1), "node b was lost"});
  EXPECT_THAT(bench_.Effect<SignalGroup>()->spared, IsEmpty());
}

TEST_F(SupervisorRejoinTest, OnStandbyTheyWait) {
  Run({0, 1});
  bench_.FeedMessage(rendezvous::StopWorkers{Generation(1), "the job shrinks"});
  LetGo(1, 0);
  LetGo(1, 1);
  bench_.Empty(1);
  bench_.FeedMessage(rendezvous::Standby{.reason = "enough nodes", .spare = true});
  bench_.Advance(absl::Seconds(8));
  EXPECT_FALSE(bench_.Effect<SweepGroup>().has_value());
  bench_.Assign(3);
  EXPECT_THAT(bench_.Effect<SpawnGroup>()->kept, ElementsAre(0, 1));
  EXPECT_THAT(bench_.told_, HasSubstr("; ranks 2 (pid 10), 3 (pid 11) go on without a restart"));
}

TEST_F(SupervisorRejoinTest, WhoDiesMeanwhileIsStartedAnew) {
  Run({0, 1});
  bench_.FeedMessage(rendezvous::StopWorkers{Generation(1), "the job shrinks"});
  LetGo(1, 0);
  LetGo(1, 1);
  bench_.Empty(1);
  bench_.End(1, 1, 0, SIGSEGV);
  EXPECT_THAT(bench_.told_, HasSubstr("was killed by SIGSEGV while it waited for the next"));
  bench_.Assign(2);
  EXPECT_THAT(bench_.Effect<SpawnGroup>()->kept, ElementsAre(0));
}

TEST_F(SupervisorRejoinTest, ALostKeeperHasTakenThemWithIt) {
  Run({0, 1});
  bench_.End(1, 1, 0, SIGKILL);
  LetGo(1, 0);
  bench_.Empty(1);
  bench_.Feed(KeeperLost{"killed by SIGKILL"});
  EXPECT_FALSE(bench_.Effect<SweepGroup>().has_value());
}

// As far as is known the worker's peers are well: like any other failure, its end ends the
// generation.
TEST_F(SupervisorRejoinTest, WhoLetsGoOfAGenerationThatGoesOnIsKilled) {
  Run({0, 1});
  LetGo(1, 0);
  bench_.Advance(kForsakenBound - absl::Milliseconds(1));
  EXPECT_FALSE(bench_.Effect<SignalGroup>().has_value());
  bench_.Advance(absl::Milliseconds(1));
  ASSERT_TRUE(bench_.Effect<SignalGroup>().has_value());
  EXPECT_EQ(bench_.Effect<SignalGroup>()->signal, SIGKILL);
  EXPECT_FALSE(bench_.Effect<SignalGroup>()->stops);
  EXPECT_THAT(bench_.Effect<SignalGroup>()->spared, ElementsAre(1));
  EXPECT_FALSE(bench_.Effect<EndGeneration>().has_value());
  EXPECT_THAT(Facts("forsaken"), HasSubstr("waited_ms=60000 then=killed"));
  EXPECT_THAT(bench_.told_, HasSubstr("let go of generation 1, which has not ended within 1m"));
  bench_.End(1, 0, 0, SIGKILL);
  EXPECT_TRUE(bench_.Sent<rendezvous::WorkerFailed>().has_value());
  EXPECT_THAT(bench_.Effect<SignalGroup>()->spared, ElementsAre(1));
}

TEST_F(SupervisorRejoinTest, AtAStopStepOneEndsAndOneLetsGo) {
  Run({0, 1});
  bench_.FeedMessage(rendezvous::CommitStop{.generation = Generation(1),
                                            .step = 7,
                                            .within = absl::Seconds(4),
                                            .reason = "node b is drained"});
  bench_.End(1, 1, 0);
  EXPECT_FALSE(bench_.Effect<SweepGroup>().has_value());
  LetGo(1, 0);
  ASSERT_TRUE(bench_.Effect<SweepGroup>().has_value());
  EXPECT_THAT(bench_.Effect<SweepGroup>()->spared, ElementsAre(0));
  EXPECT_FALSE(bench_.Effect<EndGeneration>().has_value()) << "others may still save";
  bench_.Feed(GroupEmpty{.generation = Generation(1), .master_port = 4242, .stopped_at = 7});
  EXPECT_TRUE(bench_.Sent<rendezvous::GroupStopped>().has_value());
}

TEST_F(SupervisorRejoinTest, WhoHasDoneItsWorkIsStoppedLikeOthers) {
  Run({0, 1});
  bench_.Feed(WorkerCanRejoin{Generation(1), 0, /*can=*/false});
  bench_.FeedMessage(rendezvous::StopWorkers{Generation(1), "node b was lost"});
  EXPECT_THAT(bench_.Effect<SignalGroup>()->spared, ElementsAre(1));
}

TEST_F(SupervisorRejoinTest, TheServiceHearsWhetherALossWouldCostAnything) {
  const auto hears = [&] {
    bench_.FeedMessage(rendezvous::Probe{.nonce = 7});
    return bench_.Sent<rendezvous::Renewal>()->can_rejoin;
  };
  Run({0});
  EXPECT_FALSE(hears()) << "worker 1 would be started again";
  bench_.Feed(WorkerCanRejoin{Generation(1), 1});
  EXPECT_TRUE(hears());
  bench_.Feed(WorkerCanRejoin{Generation(1), 0, /*can=*/false});
  EXPECT_FALSE(hears());
}

TEST_F(SupervisorRejoinTest, WordsOfOtherGenerationsAreIgnored) {
  Run({});
  bench_.Feed(WorkerCanRejoin{Generation(2), 0});
  bench_.Feed(WorkerCanRejoin{Generation(1), 7});
  LetGo(2, 0);
  bench_.FeedMessage(rendezvous::StopWorkers{Generation(1), "node b was lost"});
  EXPECT_THAT(bench_.Effect<SignalGroup>()->spared, IsEmpty());
  bench_.Feed(WorkerCanRejoin{Generation(1), 0});  // it has the signal
  LetGo(1, 0);
  bench_.End(1, 1, 0, SIGTERM);
  EXPECT_FALSE(bench_.Effect<SweepGroup>().has_value());
}

}  // namespace
}  // namespace ddprun::launcher
