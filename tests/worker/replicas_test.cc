// Sessions whose workers each have a share of the state, and live on when others, with theirs,
// don't: over real processes, and an agent that the test plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/trees.h"
#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

// What a rank wrote at its end, by name.
using Seen = std::map<std::string, std::string>;

constexpr uint32_t kWorld = 3;

// 72 points, 4 of each rank's in a pass: 12 steps in two epochs.
class ReplicasTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    agent_ = FakeAgent::Start({.socket_path = directory_.File("agent"), .world_size = kWorld});
  }

  // Shared memory adds in the ranks' order. Gradients are no views, as LibTorch's reducer
  // multiplies them by 1/3 in its first step, which a new generation has, too, and divides views by
  // 3 later.
  std::vector<std::string> Options(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> options = {"--in_process_restart", "--zero_stage", GetParam()};
    options.insert(options.end(), {"--backend", "shm", "--bucket_cap_mb", "0.001"});
    options.insert(options.end(), {"--learning_rate", "0.01", "--lr_schedule", "constant"});
    options.insert(options.end(), {"--no_gradient_as_bucket_view", "--ema_decay", "0.75"});
    options.insert(options.end(), more.begin(), more.end());
    return options;
  }
  // `fault`: as SESSION_PROBE_FAULT.
  Process& Start(uint32_t rank, uint32_t world, uint64_t generation,
                 const std::vector<std::string>& options, const std::string& fault = "") {
    auto variables = WorkerVariables(directory_.path(), rank, world, generation);
    variables["SESSION_PROBE_FAULT"] = fault;
    std::vector<std::string> command = {InBuildTree("bin/session_probe"), "shards",
                                        directory_.File("seen")};
    command.insert(command.end(), options.begin(), options.end());
    return processes_.emplace_back(command, variables, directory_.File(Name(rank, generation)));
  }
  static std::string Name(uint32_t rank, uint64_t generation) {
    return "output." + std::to_string(rank) + "." + std::to_string(generation);
  }
  std::string Output(uint32_t rank, uint64_t generation) const {
    return ReadFile(directory_.File(Name(rank, generation)));
  }
  std::vector<Seen> SeenBy(uint32_t ranks) const {
    std::vector<Seen> seen(ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      std::istringstream lines(ReadFile(directory_.File("seen." + std::to_string(rank))));
      std::string name;
      while (lines >> name) lines >> seen[rank][name];
    }
    return seen;
  }

  // Runs all ranks of a generation, from its start to its end.
  std::vector<Seen> RunAll(uint64_t generation, uint32_t world,
                           const std::vector<std::string>& options) {
    NewJob(generation, world);
    std::vector<Process*> ranks;
    for (uint32_t rank = 0; rank < world; ++rank) {
      ranks.push_back(&Start(rank, world, generation, options));
    }
    for (uint32_t rank = 0; rank < world; ++rank) {
      EXPECT_EQ(ranks[rank]->Wait(), 0) << Output(rank, generation);
    }
    return SeenBy(world);
  }
  void NewJob(uint64_t generation = 1, uint32_t world = kWorld) {
    agent_->EndGeneration("it is done");
    agent_->BeginGeneration(generation, world);
    std::filesystem::remove(directory_.File("seen"));
    for (uint32_t rank = 0; rank < kWorld; ++rank) {
      std::filesystem::remove(directory_.File("seen." + std::to_string(rank)));
    }
  }

  // Runs a job; `victims` are killed in their sixth step, together, and started anew.
  std::vector<Seen> RunWithout(const std::vector<uint32_t>& victims, const std::string& moment,
                               const std::vector<std::string>& options,
                               uint32_t next_world = kWorld, int exit = 0) {
    NewJob();
    const auto is_victim = [&](uint32_t rank) {
      return std::count(victims.begin(), victims.end(), rank) > 0;
    };
    std::vector<Process*> first;
    for (uint32_t rank = 0; rank < kWorld; ++rank) {
      first.push_back(
          &Start(rank, kWorld, 1, options, is_victim(rank) ? "5 " + moment + " 19" : ""));
    }
    for (const uint32_t victim : victims) EXPECT_TRUE(first[victim]->AwaitStop());
    for (const uint32_t victim : victims) first[victim]->Kill(SIGKILL);
    for (const uint32_t victim : victims) EXPECT_EQ(first[victim]->Wait(), -SIGKILL);
    agent_->EndGeneration("they were killed");
    agent_->BeginGeneration(2, next_world);
    std::vector<Process*> last;
    for (uint32_t rank = 0; rank < next_world; ++rank) {
      last.push_back(is_victim(rank) ? &Start(rank, next_world, 2, options) : first[rank]);
    }
    for (uint32_t rank = 0; rank < next_world; ++rank) {
      EXPECT_EQ(last[rank]->Wait(), exit) << Output(rank, is_victim(rank) ? 2 : 1);
    }
    return SeenBy(next_world);
  }

  // How many steps rank 0 of both generations has done.
  int64_t StepsTwice() const {
    std::map<int64_t, int64_t> times;
    std::istringstream lines(ReadFile(directory_.File("seen")));
    int64_t generation = 0;
    for (int64_t step = 0; lines >> generation >> step;) ++times[step];
    return std::count_if(times.begin(), times.end(), [](const auto& it) { return it.second > 1; });
  }
  int64_t LastStepOf(int64_t wanted) const {
    int64_t last = 0;
    std::istringstream lines(ReadFile(directory_.File("seen")));
    int64_t generation = 0;
    for (int64_t step = 0; lines >> generation >> step;) {
      if (generation == wanted) last = std::max(last, step);
    }
    return last;
  }
  int64_t FirstStepOf(int64_t wanted) const {
    std::istringstream lines(ReadFile(directory_.File("seen")));
    int64_t generation = 0;
    for (int64_t step = 0; lines >> generation >> step;) {
      if (generation == wanted) return step;
    }
    return 0;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<FakeAgent> agent_;
  std::deque<Process> processes_;
};

TEST_P(ReplicasTest, ALostShareComesBackBitByBit) {
  const auto expected = RunAll(1, kWorld, Options());
  std::vector<const char*> moments = {"backward", "after"};
  if (TestsWhole()) moments.insert(moments.end(), {"forward", "between"});
  for (const char* moment : moments) {
    EXPECT_EQ(RunWithout({2}, moment, Options()), expected) << moment;
    EXPECT_LE(StepsTwice(), 1) << moment;
    EXPECT_THAT(Output(0, 1), HasSubstr("this one without a restart"));
  }
  // A new rank 0 with another model than the others'.
  EXPECT_EQ(RunWithout({0}, "backward", Options()), expected);
  EXPECT_THAT(Output(0, 2), HasSubstr("with the state of a worker that lives"));
  // Negative control: another step more ends elsewhere.
  EXPECT_NE(RunAll(1, kWorld, Options({"--steps", "11"})), expected);
}

TEST_P(ReplicasTest, OfThreeCopiesAnyTwoMayBeLost) {
  const std::vector<std::string> options = Options({"--replicas", "2"});
  const auto expected = RunAll(1, kWorld, options);
  EXPECT_EQ(RunWithout({1, 2}, "backward", options), expected);
  EXPECT_LE(StepsTwice(), 1);
  EXPECT_EQ(RunWithout({0, 2}, "after", options), expected);
}

// Each rank has a copy of the share of the rank before it, so 2 had that of 1.
TEST_P(ReplicasTest, TwinWithFewerCopiesHasLostItAndSaysSo) {
  RunWithout({1, 2}, "backward", Options(), kWorld, /*exit=*/1);
  EXPECT_THAT(Output(0, 1), HasSubstr("a worker is gone with its share of the optimizer's state"));
}

TEST_P(ReplicasTest, TwinWithoutGoesBackToTheCheckpoint) {
  const auto expected = RunAll(1, kWorld, Options());
  const std::vector<std::string> options =
      Options({"--replicas", "0", "--checkpoint_every", "0", "--checkpoint_dir",
               directory_.File("checkpoints")});
  EXPECT_EQ(RunWithout({2}, "backward", options), expected);
  EXPECT_EQ(StepsTwice(), 2);  // 4 and 5
  EXPECT_THAT(Output(0, 1), HasSubstr("resumed at step 3"));
}

TEST_P(ReplicasTest, CopiesOfEveryThirdStepCostUpToThree) {
  const std::vector<std::string> options = Options({"--replicate_every", "3"});
  const auto expected = RunAll(1, kWorld, options);
  EXPECT_EQ(RunWithout({2}, "backward", options), expected);
  EXPECT_EQ(StepsTwice(), 2);  // 4 and 5
}

// Survivors break off in the optimizer's step, when its gradients are unscaled already.
TEST_P(ReplicasTest, AStepThatAScalerHadBegunIsDoneAgain) {
  const std::vector<std::string> options =
      Options({"--mixed_precision", "fp16", "--max_grad_norm", "0.5", "--replicate_every", "3"});
  const auto expected = RunAll(1, kWorld, options);
  EXPECT_EQ(RunWithout({2}, "between", options), expected);
}

// Fewer ranks have other shares: their result is that of a job with as many ranks that goes on from
// a checkpoint of that step.
TEST_P(ReplicasTest, SharesAreDealtOutAnewForFewerRanks) {
  const auto shrunk = RunWithout({2}, "backward", Options(), 2);
  EXPECT_EQ(shrunk[0].at("parameters"), shrunk[1].at("parameters"));
  const int64_t step = FirstStepOf(2) - 1;
  EXPECT_GE(step, LastStepOf(1) - 1);
  const std::vector<std::string> saving =
      Options({"--checkpoint_dir", directory_.File("checkpoints")});
  std::vector<std::string> first = saving;
  first.insert(first.end(), {"--steps", std::to_string(step)});
  RunAll(1, kWorld, first);
  EXPECT_EQ(RunAll(2, 2, saving), shrunk);
  EXPECT_THAT(Output(0, 2), HasSubstr("resumed at step " + std::to_string(step)));
}

// survivors_test.py has all of them in every run.
INSTANTIATE_TEST_SUITE_P(Stages, ReplicasTest,
                         ::testing::ValuesIn(FewOrAll<const char*>({"3"}, {"1", "2"})));

}  // namespace
}  // namespace ddprun::testing
