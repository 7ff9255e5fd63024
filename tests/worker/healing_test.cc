// New workers that get the state of the others beside a step, and what is killed meanwhile: over
// real processes, and an agent that the test plays.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/fd.h"
#include "tests/worker/in_process_restart.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

// 72 points, twice; each worker takes 4 in a step.
constexpr size_t kSamples = 144;
constexpr size_t kStepsOfTwo = 18;
constexpr size_t kStepsOfThree = 12;

// What ranks wrote after a step, as they did it the last time.
struct Done {
  uint64_t generation = 0;
  std::vector<std::string> parameters, averages, buffers;  // digests
};

class HealingTest : public InProcessRestartTest {
 protected:
  void SetUp() override {
    InProcessRestartTest::SetUp();
    what_ = "heal";
  }
  static std::vector<std::string> Options(std::vector<std::string> more = {}) {
    std::vector<std::string> options = {"--in_process_restart", "--healing", "beside"};
    options.insert(options.end(), {"--ema_decay", "0.75", "--learning_rate", "0.01"});
    options.insert(options.end(), more.begin(), more.end());
    return options;
  }
  void BeginAnew(uint32_t world) {
    std::filesystem::remove(directory_.File("seen"));
    agent_->EndGeneration("it is done");
    agent_->BeginGeneration(1, world);
  }
  std::map<int, Done> Steps() const {
    std::map<int, Done> steps;
    std::istringstream lines(ReadFile(directory_.File("seen")));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string kind, rank, parameters, averages, buffers;
      uint64_t generation = 0;
      int step = 0;
      words >> kind >> generation >> step >> rank >> parameters >> averages >> buffers;
      if (kind != "done" || generation < steps[step].generation) continue;
      if (generation > steps[step].generation) steps[step] = {.generation = generation};
      steps[step].parameters.push_back(parameters);
      steps[step].averages.push_back(averages);
      steps[step].buffers.push_back(buffers);
    }
    return steps;
  }
  // What the parameters are after each step of two undisturbed workers. The sum of two numbers
  // doesn't depend on the backend.
  const std::map<int, Done>& UndisturbedSteps() {
    static std::map<int, Done> steps;
    if (!steps.empty()) return steps;
    Process& one = Start(0, 2, 1, "", Options());
    Process& other = Start(1, 2, 1, "", Options());
    EXPECT_EQ(one.Wait(), 0) << Output(0, 1);
    EXPECT_EQ(other.Wait(), 0) << Output(1, 1);
    steps = Steps();
    BeginAnew(2);
    return steps;
  }
  // All ranks of a generation come to the same bits in a step.
  void ExpectTheSameOnAllRanks(size_t ranks) const {
    const std::map<int, Done> steps = Steps();
    EXPECT_EQ(steps.rbegin()->second.parameters.size(), ranks);
    for (const auto& [step, done] : steps) {
      EXPECT_EQ(std::set(done.parameters.begin(), done.parameters.end()).size(), 1) << step;
      EXPECT_EQ(std::set(done.averages.begin(), done.averages.end()).size(), 1) << step;
    }
  }
  // All steps are done, too, and all samples count once.
  void ExpectAllIsDone(size_t ranks = 2) const {
    ExpectTheSameOnAllRanks(ranks);
    EXPECT_EQ(Steps().size(), ranks == 2 ? kStepsOfTwo : kStepsOfThree);
    const auto times = TimesLearned();
    EXPECT_EQ(times.size(), kSamples);
    for (const auto& [sample, count] : times) {
      EXPECT_EQ(count, 1) << "sample " << sample.second << " of epoch " << sample.first;
    }
  }
  static void ExpectSame(const std::map<int, Done>& steps, const std::map<int, Done>& expected) {
    for (const auto& [step, done] : expected) {
      EXPECT_EQ(steps.at(step).parameters.front(), done.parameters.front()) << step;
      EXPECT_EQ(steps.at(step).averages.front(), done.averages.front()) << step;
    }
  }
  // Where the line is in what the workers wrote.
  size_t PlaceOf(const std::string& line) const {
    const size_t place = ReadFile(directory_.File("seen")).find(line + "\n");
    EXPECT_NE(place, std::string::npos) << line;
    return place;
  }
  // Returns when a worker waits at its gate, which it does until this is closed.
  Fd OpenGate() const {
    const std::string gate = directory_.File("seen.gate");
    EXPECT_EQ(mkfifo(gate.c_str(), 0600) == 0 || errno == EEXIST, true);
    return Fd(open(gate.c_str(), O_WRONLY | O_CLOEXEC));
  }
};

// In two backward passes the survivor learns from the very samples that two workers would have
// learned from in one each; with zeros added and halved that is the same sum, bit by bit.
TEST_F(HealingTest, AWorkerIsHealedBesideAStepThatComesToTheSameNumbers) {
  for (const char* backend : {"gloo", "shm"}) {
    const std::vector<std::string> options = Options({"--backend", backend});
    const std::map<int, Done>& expected = UndisturbedSteps();
    const auto [survivor, successor] = ReplaceRankOne("1 5 backward 9", options);
    EXPECT_EQ(survivor.Wait(), 0) << Output(0, 1);
    EXPECT_EQ(successor.Wait(), 0) << Output(1, 2);
    ExpectAllIsDone();
    const std::map<int, Done> steps = Steps();
    ExpectSame(steps, expected);
    EXPECT_EQ(steps.at(4).generation, 1);
    EXPECT_EQ(steps.at(5).generation, 2);
    EXPECT_EQ(steps.at(5).parameters.size(), 2) << "the healed worker takes the same step";
    BeginAnew(2);
  }
}

// Rank 0 is new: its parameters and batch norm's statistics must not become everybody's.
TEST_F(HealingTest, ANewRankZeroIsHealed) {
  const std::vector<std::string> options = Options();
  const std::map<int, Done>& expected = UndisturbedSteps();
  Process& victim = Start(0, 2, 1, "", options);
  Process& survivor = Start(1, 2, 1, "1 5 backward 19", options);
  ASSERT_TRUE(survivor.AwaitStop());
  KillAndWait(victim);
  survivor.Kill(SIGCONT);
  agent_->EndGeneration("rank 0 was killed");
  agent_->BeginGeneration(2, 2);
  Process& successor = Start(0, 2, 2, "", options);
  EXPECT_EQ(successor.Wait(), 0) << Output(0, 2);
  EXPECT_EQ(survivor.Wait(), 0) << Output(1, 1);
  ExpectAllIsDone();
  const std::map<int, Done> steps = Steps();
  ExpectSame(steps, expected);
  // After the step that healed, all ranks have the buffers of the ranks that learned; after the
  // others, those of rank 0.
  for (const auto& [step, done] : steps) EXPECT_EQ(done.buffers[0], done.buffers[1]) << step;
}

// The transfer is held before its first byte, and only then does the survivor come to its forward
// pass, where it stops itself. With --healing before it comes there only when the transfer is over.
TEST_F(HealingTest, SurvivorsTrainWhileTheStateIsOnItsWay) {
  for (const char* healing : {"beside", "before"}) {
    const std::vector<std::string> options = Options({"--healing", healing});
    const auto [survivor, successor] =
        ReplaceRankOne("1 5 backward 9", options, "2 5 give 0 2 5 forward 19");
    Fd gate = OpenGate();
    if (healing == std::string("beside")) {
      EXPECT_TRUE(survivor.AwaitStop());
    }
    std::ofstream(directory_.File("seen"), std::ios::app) << "released" << std::endl;
    gate.Reset();
    if (healing == std::string("before")) {
      EXPECT_TRUE(survivor.AwaitStop());
    }
    survivor.Kill(SIGCONT);
    EXPECT_EQ(survivor.Wait(), 0) << Output(0, 1);
    EXPECT_EQ(successor.Wait(), 0) << Output(1, 2);
    EXPECT_EQ(PlaceOf("forward 2 5 0") < PlaceOf("released"), healing == std::string("beside"));
    ExpectAllIsDone();
    BeginAnew(2);
  }
}

// What a worker computes with parameters that it doesn't have yet may come to anything.
TEST_F(HealingTest, NothingOfTheNewWorkersOwnReachesTheOthers) {
  const std::vector<std::string> options = Options();
  const std::map<int, Done>& expected = UndisturbedSteps();
  const auto [survivor, successor] =
      ReplaceRankOne("1 5 backward 9", options, "", "2 5 infinite 1");
  EXPECT_EQ(survivor.Wait(), 0) << Output(0, 1);
  EXPECT_EQ(successor.Wait(), 0) << Output(1, 2);
  ExpectSame(Steps(), expected);
}

// A step with everything else that may be in one. The ranks agree in every bit, whatever the sums
// are. fp16 leaves out the first steps.
TEST_F(HealingTest, AHealedStepIsLikeAnyOther) {
  const std::vector<std::vector<std::string>> all =
      FewOrAll<std::vector<std::string>>({{"--mixed_precision", "fp16", "--max_grad_norm", "0.5"},
                                          {"--comm_hook", "power_sgd", "--num_workers", "1"}},
                                         {{"--find_unused_parameters"},
                                          {"--no_gradient_as_bucket_view"},
                                          {"--comm_hook", "bf16"},
                                          {"--no_broadcast_buffers"}});
  for (const std::vector<std::string>& more : all) {
    const std::vector<std::string> options = Options(more);
    const auto [survivor, successor] = ReplaceRankOne("1 5 between 9", options);
    EXPECT_EQ(survivor.Wait(), 0) << Output(0, 1);
    EXPECT_EQ(successor.Wait(), 0) << Output(1, 2);
    ExpectTheSameOnAllRanks(2);
    EXPECT_EQ(Steps().rbegin()->first, kStepsOfTwo - 1);
    BeginAnew(2);
  }
}

// The giver is killed when the state has come whole, but before any optimizer had stepped.
TEST_F(HealingTest, AStateThatHasComeWholeOutlivesItsGiver) {
  const std::vector<std::string> options = Options();
  const std::map<int, Done>& expected = UndisturbedSteps();
  const auto [giver, healed] = ReplaceRankOne("1 5 backward 9", options, "", "2 -1 taken 19");
  ASSERT_TRUE(healed.AwaitStop());
  KillAndWait(giver);
  healed.Kill(SIGCONT);
  agent_->EndGeneration("rank 0 was killed");
  agent_->BeginGeneration(3, 2);
  Process& third = Start(0, 2, 3, "", options);
  EXPECT_EQ(third.Wait(), 0) << Output(0, 3);
  EXPECT_EQ(healed.Wait(), 0) << Output(1, 2);
  EXPECT_THAT(Output(0, 3), HasSubstr("goes on at step 5, epoch 0, with the state of a worker"));
  ExpectAllIsDone();
  ExpectSame(Steps(), expected);
}

// Half a state is none: it is lost with its only giver. The worker that had half of it begins like
// any other, at the very beginning if there is no checkpoint.
TEST_F(HealingTest, HalfAStateLeavesNothingBehind) {
  const std::vector<std::string> options = Options();
  const std::map<int, Done>& expected = UndisturbedSteps();
  const auto [giver, half_healed] = ReplaceRankOne("1 5 backward 9", options, "", "2 -1 taking 19");
  ASSERT_TRUE(half_healed.AwaitStop());
  KillAndWait(giver);
  half_healed.Kill(SIGCONT);
  agent_->EndGeneration("rank 0 was killed");
  agent_->BeginGeneration(3, 2);
  Process& third = Start(0, 2, 3, "", options);
  EXPECT_EQ(third.Wait(), 0) << Output(0, 3);
  EXPECT_EQ(half_healed.Wait(), 0) << Output(1, 2);
  EXPECT_EQ(Steps().at(0).generation, 3);
  ExpectAllIsDone();
  ExpectSame(Steps(), expected);
}

// A worker of a node that was away has a state of its own, an older one, and keeps it until it has
// the newer one whole: with the giver killed before that, all go on from the older one.
TEST_F(HealingTest, AnOlderStateStaysUntilTheNewerOneIsThere) {
  const std::vector<std::string> options = Options();
  const std::map<int, Done>& expected = UndisturbedSteps();
  const auto [here, away] =
      MeetAfterAbsence("1 6 after 19 3 -1 taking 19", options, "2 11 after 19", options);
  ASSERT_TRUE(away.AwaitStop());
  KillAndWait(here);
  away.Kill(SIGCONT);
  agent_->EndGeneration("rank 0 was killed");
  agent_->BeginGeneration(4, 2);
  Process& last = Start(0, 2, 4, "", options);
  EXPECT_EQ(last.Wait(), 0) << Output(0, 4);
  EXPECT_EQ(away.Wait(), 0) << Output(1, 1);
  EXPECT_THAT(Output(0, 4), HasSubstr("goes on at step 6, epoch 0, with the state of a worker"));
  ExpectAllIsDone();
  ExpectSame(Steps(), expected);
}

// One of three workers is new. Whichever worker is killed while it is healed, at any moment, the
// others go on.
struct Death {
  uint32_t rank;      // 0 gives, 1 looks on, 2 is new
  const char* fault;  // as SESSION_PROBE_FAULT
  bool held = false;  // the giver's transfer waits until somebody is dead
};

TEST_F(HealingTest, WhoeverIsKilledMeanwhileTheOthersGoOn) {
  const std::vector<Death> deaths =
      FewOrAll<Death>({{0, "2 5 giving 9"}, {2, "2 -1 taking 9"}, {1, "2 5 between 9"}},
                      {{0, "2 5 give 9"},
                       {0, "2 5 between 9"},
                       {2, "2 -1 take 9"},
                       {2, "2 5 between 9"},
                       {1, "2 5 forward 9", true},
                       {1, "2 5 backward 9", true}});
  const std::vector<std::string> options = Options();
  for (const Death& death : deaths) {
    BeginAnew(3);
    // Rank 1 stops in step 5, so that no rank is still in step 4 when rank 2 is killed.
    const auto fault_of = [&](uint32_t rank) -> std::string {
      const std::string first = rank == 1 ? "1 5 forward 19 " : "";
      if (rank == death.rank) return first + death.fault;
      return rank == 0 && death.held ? "2 5 giving 0" : first;
    };
    std::map<uint32_t, Process*> alive = {{0, &Start(0, 3, 1, fault_of(0), options)},
                                          {1, &Start(1, 3, 1, fault_of(1), options)}};
    Process& victim = Start(2, 3, 1, "1 5 backward 19", options);
    ASSERT_TRUE(victim.AwaitStop()) << Output(2, 1);
    ASSERT_TRUE(alive.at(1)->AwaitStop()) << Output(1, 1);
    KillAndWait(victim);
    alive.at(1)->Kill(SIGCONT);
    agent_->EndGeneration("rank 2 was killed");
    agent_->BeginGeneration(2, 3);
    alive[2] = &Start(2, 3, 2, fault_of(2), options);
    std::optional<Fd> gate;
    if (death.held) gate = OpenGate();
    EXPECT_EQ(alive.at(death.rank)->Wait(), -SIGKILL) << death.fault;
    agent_->EndGeneration("another one was killed");
    gate.reset();
    agent_->BeginGeneration(3, 3);
    alive[death.rank] = &Start(death.rank, 3, 3, "", options);
    for (const auto& [rank, process] : alive) {
      EXPECT_EQ(process->Wait(), 0) << death.fault << ", rank " << rank;
    }
    const std::map<int, Done> steps = Steps();
    EXPECT_EQ(steps.at(4).generation, 1) << death.fault << ": what was done is done";
    EXPECT_EQ(steps.at(5).generation, 3)
        << death.fault << ": nobody was ahead of the healed worker";
    EXPECT_EQ(steps.at(5).parameters.size(), 3) << death.fault;
    ExpectAllIsDone(3);
  }
}

}  // namespace
}  // namespace ddprun::testing
