#ifndef DDPRUN_TESTS_WORKER_SESSION_TESTING_H_
#define DDPRUN_TESTS_WORKER_SESSION_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/trees.h"
#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"

namespace ddprun::testing {

// Ranks of session_probe under one agent.
class SessionTest : public ::testing::Test {
 protected:
  // Runs the probe. Returns what each rank wrote, by name.
  std::vector<std::map<std::string, std::string>> Run(const std::string& what,
                                                      const std::vector<std::string>& options = {},
                                                      uint32_t ranks = 2,
                                                      const std::string& of_rank_1 = "") {
    std::vector<std::string> command = {"session_probe", what, directory_.File("seen")};
    command.insert(command.end(), options.begin(), options.end());
    return RunProgram(std::move(command), ranks, of_rank_1);
  }

  // Runs another program, given by its name. Returns what each rank wrote, by name.
  std::vector<std::map<std::string, std::string>> RunProgram(std::vector<std::string> command,
                                                             uint32_t ranks,
                                                             const std::string& of_rank_1 = "") {
    command[0] = InBuildTree("bin/" + command[0]);
    std::filesystem::remove(directory_.File("agent"));
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      std::filesystem::remove(directory_.File("error." + std::to_string(rank)));
      std::filesystem::remove(directory_.File("output." + std::to_string(rank)));
    }
    const auto agent =
        FakeAgent::Start({.socket_path = directory_.File("agent"), .world_size = ranks});
    std::vector<Process> processes;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      if (rank == 1 && !of_rank_1.empty()) command.push_back(of_rank_1);
      processes.emplace_back(command, WorkerVariables(directory_.path(), rank, ranks),
                             directory_.File("output." + std::to_string(rank)),
                             Process::Start::kForked);
    }
    exits_.clear();
    for (Process& process : processes) exits_.push_back(process.Wait());
    std::vector<std::map<std::string, std::string>> seen(ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      std::istringstream lines(ReadFile(directory_.File("seen." + std::to_string(rank))));
      std::string name;
      while (lines >> name) std::getline(lines >> std::ws, seen[rank][name]);
    }
    return seen;
  }

  // Runs a training that must end well, and with the same results on both ranks. Returns these.
  std::map<std::string, std::string> RunWell(const std::string& what,
                                             const std::vector<std::string>& options = {}) {
    const auto seen = Run(what, options);
    EXPECT_EQ(exits_, std::vector<int>({0, 0})) << Output(0) << Output(1);
    EXPECT_EQ(seen[0], seen[1]);
    return seen[0];
  }

  // The steps of the checkpoints in "checkpoints", and options that save and keep them there.
  std::vector<int64_t> SavedSteps() const {
    std::vector<int64_t> steps;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.File("checkpoints"))) {
      const std::string name = entry.path().filename();
      const size_t at = name.find("-s");
      if (name.ends_with(".safetensors") && name.find("-r") == std::string::npos) {
        steps.push_back(std::stoll(name.substr(at + 2)));
      }
    }
    std::sort(steps.begin(), steps.end());
    return steps;
  }
  std::vector<std::string> Saving(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> options = {"--checkpoint_dir",   directory_.File("checkpoints"),
                                        "--checkpoint_every", "4",
                                        "--keep_checkpoints", "9",
                                        "--lr_schedule",      "constant"};
    options.insert(options.end(), more.begin(), more.end());
    return options;
  }

  std::string Message(uint32_t rank) const {
    const std::string text = ReadFile(directory_.File("error." + std::to_string(rank)));
    return text.empty() ? "" : nlohmann::json::parse(text)["message"]["message"].get<std::string>();
  }
  std::string Output(uint32_t rank) const {
    return ReadFile(directory_.File("output." + std::to_string(rank)));
  }

  TemporaryDirectory directory_;
  std::vector<int> exits_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_SESSION_TESTING_H_
