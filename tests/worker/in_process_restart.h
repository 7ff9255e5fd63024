#ifndef DDPRUN_TESTS_WORKER_IN_PROCESS_RESTART_H_
#define DDPRUN_TESTS_WORKER_IN_PROCESS_RESTART_H_

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

// Sessions with workers that go on when others have died: real processes of session_probe, or
// another program_, and an agent that the test plays.
class InProcessRestartTest : public ::testing::Test {
 protected:
  void SetUp() override { agent_ = FakeAgent::Start({.socket_path = directory_.File("agent")}); }

  // A worker of `world` in `generation`. `fault`: as SESSION_PROBE_FAULT.
  Process& Start(uint32_t rank, uint32_t world, uint64_t generation, const std::string& fault = "",
                 std::vector<std::string> options = {}) {
    auto variables = WorkerVariables(directory_.path(), rank, world, generation);
    variables["SESSION_PROBE_FAULT"] = fault;
    std::vector<std::string> command = {InBuildTree("bin/" + program_), what_,
                                        directory_.File("seen")};
    command.insert(command.end(), options.begin(), options.end());
    const std::string output = "output." + std::to_string(rank) + "." + std::to_string(generation);
    return processes_.emplace_back(command, variables, directory_.File(output),
                                   Process::Start::kForked);
  }
  std::string Output(uint32_t rank, uint64_t generation) const {
    return ReadFile(
        directory_.File("output." + std::to_string(rank) + "." + std::to_string(generation)));
  }

  // What a rank wrote at its end, by name.
  std::map<std::string, std::string> Seen(uint32_t rank) const {
    std::map<std::string, std::string> seen;
    std::istringstream lines(ReadFile(directory_.File("seen." + std::to_string(rank))));
    std::string name;
    std::string value;
    while (lines >> name >> value) seen[name] = value;
    return seen;
  }

  // Rank 1 is killed at `fault`; and rank 0, as soon as the next rank 1 has the state from it. The
  // third generation trains to its end.
  void LoseBothOneAfterTheOther(const std::string& fault, const std::vector<std::string>& options) {
    Process& first = Start(0, 2, 1, "", options);
    Process& victim = Start(1, 2, 1, fault, options);
    EXPECT_EQ(victim.Wait(), -SIGKILL);
    agent_->EndGeneration("rank 1 was killed");
    agent_->HoldStoreAt("models/");
    agent_->BeginGeneration(2, 2);
    Process& second = Start(1, 2, 2, "", options);
    agent_->AwaitHeld(2);  // both have the state, and compare their models
    KillAndWait(first);
    agent_->EndGeneration("rank 0 was killed");
    agent_->HoldStoreAt("");
    agent_->BeginGeneration(3, 2);
    Process& third = Start(0, 2, 3, "", options);
    EXPECT_EQ(third.Wait(), 0) << Output(0, 3);
    EXPECT_EQ(second.Wait(), 0) << Output(1, 2);
  }

  // Two ranks: rank 1 is killed at `fault`, and a new worker takes its place, in generation 2.
  struct Pair {
    Process& survivor;
    Process& successor;
  };
  Pair ReplaceRankOne(const std::string& fault, const std::vector<std::string>& options,
                      const std::string& of_survivor = "", const std::string& of_successor = "") {
    Process& survivor = Start(0, 2, 1, of_survivor, options);
    Process& victim = Start(1, 2, 1, fault, options);
    EXPECT_EQ(victim.Wait(), -SIGKILL);
    agent_->EndGeneration("rank 1 was killed");
    agent_->BeginGeneration(2, 2);
    return {survivor, Start(1, 2, 2, of_successor, options)};
  }

  static void KillAndWait(Process& process) {
    process.Kill(SIGKILL);
    EXPECT_EQ(process.Wait(), -SIGKILL);
  }

  // A node with rank 1 is away for generation 2, in which two others train. The node comes back for
  // generation 3, beside rank 0 of the others. Params: first: faults of the node that is away;
  // second: of the others.
  struct Reunion {
    Process& here;
    Process& away;
  };
  Reunion MeetAfterAbsence(const std::string& first, const std::vector<std::string>& first_options,
                           const std::string& second,
                           const std::vector<std::string>& second_options) {
    Process& gone = Start(0, 2, 1, "", first_options);
    Process& away = Start(1, 2, 1, first, first_options);
    EXPECT_TRUE(away.AwaitStop());
    KillAndWait(gone);
    agent_->EndGeneration("both nodes were lost");
    agent_->BeginGeneration(2, 2);
    Process& here = Start(0, 2, 2, second, second_options);
    Process& leaves = Start(1, 2, 2, second, second_options);
    EXPECT_TRUE(here.AwaitStop());
    EXPECT_TRUE(leaves.AwaitStop());
    KillAndWait(leaves);
    agent_->EndGeneration("a node left, and one came back");
    agent_->BeginGeneration(3, 2);
    here.Kill(SIGCONT);
    away.Kill(SIGCONT);
    return {here, away};
  }

  // A worker that trains alone gets another one beside it after its fifth step, and both end.
  void Grow(std::vector<std::string> options) {
    // A worker alone waits for no peer: it must hear of its agent before its last step.
    options.insert(options.end(), {"--step_delay_ms", "100"});
    agent_->EndGeneration("");
    agent_->BeginGeneration(1, 1);
    Process& first = Start(0, 1, 1, "5 backward 19", options);
    ASSERT_TRUE(first.AwaitStop());
    agent_->EndGeneration("a node has come");
    agent_->BeginGeneration(2, 2);
    first.Kill(SIGCONT);
    Process& second = Start(1, 2, 2, "", options);
    EXPECT_EQ(first.Wait(), 0) << Output(0, 1);
    EXPECT_EQ(second.Wait(), 0) << Output(1, 2);
    EXPECT_EQ(Seen(0)["parameters"], Seen(1)["parameters"]);
  }

  // Returns the results of the undisturbed training, by rank.
  std::vector<std::map<std::string, std::string>> Undisturbed(
      const std::vector<std::string>& options) {
    Process& one = Start(0, 2, 1, "", options);
    Process& other = Start(1, 2, 1, "", options);
    EXPECT_EQ(one.Wait(), 0) << Output(0, 1);
    EXPECT_EQ(other.Wait(), 0) << Output(1, 1);
    std::vector<std::map<std::string, std::string>> seen = {Seen(0), Seen(1)};
    for (auto& of_rank : seen) of_rank.erase("generation");
    agent_->EndGeneration("it is done");
    agent_->BeginGeneration(1, 2);
    return seen;
  }

  // How often each sample of each epoch was learned from, by the lines of mode "samples". A step
  // counts as the last generation that did it has done it: a step that was lost with its generation
  // isn't in the model.
  std::map<std::pair<int64_t, int64_t>, int> TimesLearned() const {
    std::map<int64_t, int64_t> generation_of;
    std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, int64_t>>> begun;
    std::istringstream lines(ReadFile(directory_.File("seen")));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string kind;
      int64_t generation = 0;
      int64_t step = 0;
      words >> kind >> generation >> step;
      if (kind == "done") {
        generation_of[step] = std::max(generation_of[step], generation);
        continue;
      }
      int64_t epoch = 0;
      words >> epoch;
      for (int64_t sample = 0; words >> sample;)
        begun[{generation, step}].push_back({epoch, sample});
    }
    std::map<std::pair<int64_t, int64_t>, int> times;
    for (const auto& [step, generation] : generation_of) {
      for (const auto& sample : begun[{generation, step}]) ++times[sample];
    }
    return times;
  }

  std::string program_ = "session_probe";
  std::string what_ = "fault";
  TemporaryDirectory directory_;
  std::unique_ptr<FakeAgent> agent_;
  std::deque<Process> processes_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_IN_PROCESS_RESTART_H_
