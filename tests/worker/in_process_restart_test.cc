// Sessions whose workers live on when others don't: over real processes, and an agent that the test
// plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/in_process_restart.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

// 64 points, 4 of each rank's in a pass: 16 steps. Sums of two ranks have one order, so the
// survivor ends with the very numbers of a run in which nothing happened, batch norm's statistics
// included, which the broken step had changed already.
TEST_F(InProcessRestartTest, TheBrokenStepIsDoneAgainWithANewWorker) {
  const std::map<std::string, std::vector<std::string>> moments = {
      {"gloo", {"load", "forward", "backward", "between", "after"}}, {"shm", {"backward"}}};
  for (const auto& [backend, of_backend] : moments) {
    const std::vector<std::string> options = {"--backend", backend, "--ema_decay", "0.75"};
    const auto expected = Undisturbed(options);
    for (const std::string& moment : of_backend) {
      Process& survivor = Start(0, 2, 1, "", options);
      Process& victim = Start(1, 2, 1, "5 " + moment + " 9", options);
      EXPECT_EQ(victim.Wait(), -SIGKILL);
      agent_->EndGeneration("rank 1 was killed");
      agent_->BeginGeneration(2, 2);
      Process& successor = Start(1, 2, 2, "", options);
      EXPECT_EQ(survivor.Wait(), 0) << Output(0, 1);
      EXPECT_EQ(successor.Wait(), 0) << Output(1, 2);
      for (const uint32_t rank : {0, 1}) {
        auto seen = Seen(rank);
        EXPECT_EQ(seen["generation"], "2");
        seen.erase("generation");
        EXPECT_EQ(seen, expected[rank]) << backend << " " << moment << " rank " << rank;
      }
      EXPECT_THAT(Output(0, 1), HasSubstr("generation 2: goes on after step "));
      agent_->EndGeneration("it is done");
      agent_->BeginGeneration(1, 2);
    }
  }
}

TEST_F(InProcessRestartTest, TwinThatMayNotEndsWithItsPeer) {
  const std::vector<std::string> options = {"--no_in_process_restart"};
  Process& survivor = Start(0, 2, 1, "", options);
  Process& victim = Start(1, 2, 1, "5 backward 9", options);
  EXPECT_EQ(victim.Wait(), -SIGKILL);
  EXPECT_EQ(survivor.Wait(), 1);
  EXPECT_THAT(Output(0, 1), HasSubstr("PeerError: "));
}

// Rank 0 is new: what it begins with must not become everybody's.
TEST_F(InProcessRestartTest, ANewRankZeroTakesTheStateOfTheWorkerThatLives) {
  const auto expected = Undisturbed({});
  // The local rank is the rank here, so the roles change instead: rank 1 lives.
  Process& victim = Start(0, 2, 1);
  Process& survivor = Start(1, 2, 1, "5 backward 19");  // stops itself
  ASSERT_TRUE(survivor.AwaitStop());
  victim.Kill(SIGKILL);
  EXPECT_EQ(victim.Wait(), -SIGKILL);
  survivor.Kill(SIGCONT);
  agent_->EndGeneration("rank 0 was killed");
  agent_->BeginGeneration(2, 2);
  Process& successor = Start(0, 2, 2);
  EXPECT_EQ(successor.Wait(), 0) << Output(0, 2);
  EXPECT_EQ(survivor.Wait(), 0) << Output(1, 1);
  // Batch norm's statistics, too, which are rank 0's: all have them after each step.
  for (const uint32_t rank : {0, 1}) {
    auto seen = Seen(rank);
    seen.erase("generation");
    EXPECT_EQ(seen, expected[rank]) << "rank " << rank;
    EXPECT_EQ(seen["steps"], "16");
  }
  EXPECT_THAT(Output(0, 2), HasSubstr("with the state of a worker that lives"));
}

// The connections of a machine without power, or of a process that stands still, are never closed:
// the agent's report ends what waits for it.
TEST_F(InProcessRestartTest, APeerThatSaysNothingIsLeftWhenTheGenerationEnds) {
  for (const char* backend : {"gloo", "shm"}) {
    Process& survivor = Start(0, 2, 1, "", {"--backend", backend});
    Process& silent = Start(1, 2, 1, "5 backward 19", {"--backend", backend});
    ASSERT_TRUE(silent.AwaitStop());
    agent_->EndGeneration("rank 1 stands still");
    agent_->BeginGeneration(2, 1);
    EXPECT_EQ(survivor.Wait(), 0) << Output(0, 1);
    EXPECT_EQ(Seen(0)["generation"], "2");
    EXPECT_EQ(Seen(0)["steps"], "16") << "a step has 8 samples still";
    EXPECT_THAT(Output(0, 1), HasSubstr("on 1 worker,"));
    silent.Kill(SIGKILL);
    EXPECT_EQ(silent.Wait(), -SIGKILL);
    agent_->EndGeneration("it is done");
    agent_->BeginGeneration(1, 2);
  }
}

// A new worker's samples seem to be others, as with an augmentation. The survivor was warned of
// that in generation 1, and neither of the two waits for the other.
TEST_F(InProcessRestartTest, SamplesThatSeemToDifferHoldUpNobody) {
  const std::vector<std::string> own = {"--data", "own"};
  Process& survivor = Start(0, 2, 1, "", own);
  Process& victim = Start(1, 2, 1, "5 backward 9", own);
  EXPECT_EQ(victim.Wait(), -SIGKILL);
  agent_->EndGeneration("rank 1 was killed");
  agent_->AwaitRejoining(1);
  agent_->BeginGeneration(2, 2);
  Process& successor = Start(1, 2, 2, "", own);
  EXPECT_EQ(survivor.Wait(), 0) << Output(0, 1);
  EXPECT_EQ(successor.Wait(), 0) << Output(1, 2);
  EXPECT_THAT(Output(0, 1), HasSubstr("what is learned from differs between the ranks"));
  EXPECT_EQ(Seen(0)["steps"], "16");
}

TEST_F(InProcessRestartTest, ANextGenerationThatBreaksTooIsFollowedByAnother) {
  const auto expected = Undisturbed({});
  Process& survivor = Start(0, 2, 1);
  Process& victim = Start(1, 2, 1, "5 backward 9");
  EXPECT_EQ(victim.Wait(), -SIGKILL);
  agent_->EndGeneration("rank 1 was killed");
  agent_->AwaitRejoining(1);
  agent_->BeginGeneration(2, 2);
  agent_->AwaitWaiters(1);  // the survivor meets nobody
  agent_->EndGeneration("rank 1 could not be started");
  agent_->AwaitRejoining(2);
  agent_->BeginGeneration(3, 2);
  Process& successor = Start(1, 2, 3);
  EXPECT_EQ(survivor.Wait(), 0) << Output(0, 1);
  EXPECT_EQ(successor.Wait(), 0) << Output(1, 3);
  auto seen = Seen(0);
  EXPECT_EQ(seen["generation"], "3");
  seen.erase("generation");
  EXPECT_EQ(seen, expected[0]);
}

// The rate grows with the workers, also where the rate was another one before.
TEST_F(InProcessRestartTest, AGrowingJobGivesNewWorkersItsState) {
  Grow({"--lr_scaling", "linear", "--constant_batch", "worker"});
  EXPECT_EQ(Seen(0)["steps"], Seen(1)["steps"]);
  EXPECT_THAT(Output(0, 1), HasSubstr("on 2 workers"));
  EXPECT_THAT(Output(0, 1), Not(HasSubstr("goes on after step 0")));
}

// The worker that sent the state may be killed before the two train.
TEST_F(InProcessRestartTest, AWorkerThatHasJustTakenTheStateGivesIt) {
  auto expected = Undisturbed({});
  LoseBothOneAfterTheOther("5 backward 9", {});
  EXPECT_THAT(Output(0, 3), HasSubstr("goes on at step 5, epoch 0, with the state of a worker"));
  for (const uint32_t rank : {0, 1}) {
    EXPECT_EQ(Seen(rank)["parameters"], expected[rank]["parameters"]) << "rank " << rank;
    EXPECT_EQ(Seen(rank)["steps"], "16");
  }
}

// The worker saves checkpoints that count as newer than all others.
TEST_F(InProcessRestartTest, AWorkerThatHasJustTakenTheStateSavesTheNewestCheckpoint) {
  const std::string checkpoints = directory_.File("checkpoints");
  std::vector<std::string> options = {"--checkpoint_dir", checkpoints};
  std::vector<std::string> earlier = options;
  earlier.insert(earlier.end(), {"--epochs", "1"});
  Undisturbed(earlier);  // has the fence 1
  LoseBothOneAfterTheOther("12 backward 9", options);
  EXPECT_TRUE(
      std::filesystem::exists(checkpoints + "/checkpoint-f000002-g000003-s0000000016.safetensors"));
}

// A worker of a node that was away has done as many steps as those that are here, the last ones
// with others, which are gone: with other losses, so that nothing of theirs is alike.
TEST_F(InProcessRestartTest, OfAStepThatWasDoneTwiceTheSecondTimeCounts) {
  const auto expected = Undisturbed({});
  const auto [here, away] = MeetAfterAbsence("6 after 19", {"--data", "heavy"}, "6 after 19", {});
  EXPECT_EQ(here.Wait(), 0) << Output(0, 2);
  EXPECT_EQ(away.Wait(), 0) << Output(1, 1);
  for (const uint32_t rank : {0, 1}) {
    auto seen = Seen(rank);
    EXPECT_EQ(seen["generation"], "3");
    seen.erase("generation");
    EXPECT_EQ(seen, expected[rank]) << "rank " << rank;
  }
}

// 4 samples a step, as one rank had. What the rate grows with doesn't.
TEST_F(InProcessRestartTest, AStepStaysWhatItIsWhenAJobGrows) {
  Grow({"--lr_scaling", "linear"});
  EXPECT_EQ(Seen(0)["steps"], "32");
  EXPECT_EQ(Seen(1)["steps"], "32");
}

// There are 64 points; with two ranks the last step has four of them. Rank 1 dies, and a new one
// takes its place, or none; in place, or all are started anew and go on from a checkpoint. Loaders
// read ahead.
TEST_F(InProcessRestartTest, EachSampleIsLearnedFromOnceAnEpoch) {
  what_ = "samples";
  for (const bool in_place : {true, false}) {
    for (const char* moment : {"forward", "between", "after"}) {
      for (const uint32_t world : {1, 2}) {
        std::vector<std::string> options = {"--batch_size",       "3",
                                            "--num_workers",      "2",
                                            "--checkpoint_dir",   directory_.File("checkpoints"),
                                            "--checkpoint_every", "3"};
        if (!in_place) options.emplace_back("--no_in_process_restart");
        Process& survivor = Start(0, 2, 1, "", options);
        Process& victim = Start(1, 2, 1, std::string("7 ") + moment + " 9", options);
        EXPECT_EQ(victim.Wait(), -SIGKILL);
        if (!in_place) {
          EXPECT_EQ(survivor.Wait(), 1) << Output(0, 1);
        }
        agent_->EndGeneration("rank 1 was killed");
        agent_->BeginGeneration(2, world);
        std::vector<Process*> successors;
        for (uint32_t rank = in_place ? 1 : 0; rank < world; ++rank) {
          successors.push_back(&Start(rank, world, 2, "", options));
        }
        if (in_place) {
          EXPECT_EQ(survivor.Wait(), 0) << Output(0, 1);
        }
        for (Process* successor : successors) EXPECT_EQ(successor->Wait(), 0);
        if (!in_place) {
          EXPECT_THAT(Output(0, 2), HasSubstr("resumed at step 6"));
        }
        const auto times = TimesLearned();
        EXPECT_EQ(times.size(), 128U) << moment << " " << world << " " << in_place;
        for (const auto& [sample, count] : times) {
          EXPECT_EQ(count, 1) << "sample " << sample.second << " of epoch " << sample.first;
        }
        std::filesystem::remove(directory_.File("seen"));
        std::filesystem::remove_all(directory_.File("checkpoints"));
        agent_->EndGeneration("it is done");
        agent_->BeginGeneration(1, 2);
      }
    }
  }
}

// 64 points in 8 steps of two ranks, twice. Rank 1 dies after the last step of the first epoch, or
// in its evaluation, or after it; in place, or all are started anew from a checkpoint of that step.
TEST_F(InProcessRestartTest, AnEpochIsEvaluatedThoughAFaultFallsOnItsEnd) {
  what_ = "evaluate";
  for (const bool in_place : {true, false}) {
    for (const char* fault : {"8 after 9", "8 evaluation 9", "8 forward 9"}) {
      std::vector<std::string> options = {"--checkpoint_dir", directory_.File("checkpoints"),
                                          "--checkpoint_every", "8"};
      if (!in_place) options.emplace_back("--no_in_process_restart");
      Process& survivor = Start(0, 2, 1, "", options);
      Process& victim = Start(1, 2, 1, fault, options);
      EXPECT_EQ(victim.Wait(), -SIGKILL);
      if (!in_place) {
        EXPECT_EQ(survivor.Wait(), 1);
      }
      agent_->EndGeneration("rank 1 was killed");
      agent_->BeginGeneration(2, 2);
      Process& successor = Start(1, 2, 2, "", options);
      Process& first = in_place ? survivor : Start(0, 2, 2, "", options);
      EXPECT_EQ(first.Wait(), 0) << Output(0, in_place ? 1 : 2);
      EXPECT_EQ(successor.Wait(), 0) << Output(1, 2);
      const std::string seen = ReadFile(directory_.File("seen"));
      // After that step, a survivor knows that it was done if it heard so in time; a step that the
      // checkpoint doesn't have is done again.
      const char* expected = "2 8\n2 16\n";
      if (std::string(fault) == "8 forward 9") {
        expected = in_place ? "[12] 8\n2 16\n" : "(1 8\n)?2 8\n2 16\n";
      }
      EXPECT_THAT(seen, MatchesRegex(expected)) << fault;
      std::filesystem::remove(directory_.File("seen"));
      std::filesystem::remove_all(directory_.File("checkpoints"));
      agent_->EndGeneration("it is done");
      agent_->BeginGeneration(1, 2);
    }
  }
}

// The worker has met nobody when its peer fails.
TEST_F(InProcessRestartTest, AWorkerWhosePeerDoesNotEvenBeginGoesOn) {
  Process& survivor = Start(0, 2, 1);
  Process& culprit =
      Start(1, 2, 1, "", {"--in_process_restart", "--zero_stage", "1", "--comm_hook", "power_sgd"});
  EXPECT_EQ(culprit.Wait(), 2);
  EXPECT_THAT(Output(1, 1), HasSubstr("with a zero_stage, in_process_restart goes back"));
  agent_->AwaitWaiters(1);  // a worker that hasn't called its agent can't go on
  agent_->EndGeneration("rank 1 exited with 1");
  agent_->BeginGeneration(2, 1);
  EXPECT_EQ(survivor.Wait(), 0) << Output(0, 1);
}

// By then it has no group that could be ended.
TEST_F(InProcessRestartTest, AWorkerWhoseGpuFailsBetweenTwoGroupsOfNcclSaysSo) {
  agent_->EndGeneration("");
  agent_->BeginGeneration(1, 1);
  setenv("DDPRUN_NCCL_PLUGIN", InBuildTree("tests/worker/libfake_nccl.so").c_str(), 1);
  what_ = "leave";
  Process& worker = Start(0, 1, 1, "", {"--in_process_restart", "--backend", "nccl"});
  unsetenv("DDPRUN_NCCL_PLUGIN");
  ASSERT_TRUE(worker.AwaitStop()) << Output(0, 1);
  agent_->EndGeneration("a node has come");
  agent_->BeginGeneration(2, 1);
  worker.Kill(SIGCONT);
  EXPECT_EQ(worker.Wait(), 1);
  EXPECT_THAT(Output(0, 1), HasSubstr("CUDA error: an illegal instruction was encountered"));
}

}  // namespace
}  // namespace ddprun::testing
