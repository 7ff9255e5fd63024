#ifndef DDPRUN_TESTS_WORKER_ZERO_TESTING_H_
#define DDPRUN_TESTS_WORKER_ZERO_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/trees.h"
#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"

namespace ddprun::testing {

using Figures = std::map<std::string, double>;

// Runs a probe that writes figures.
class ZeroTest : public ::testing::Test {
 protected:
  explicit ZeroTest(std::string probe = InBuildTree("bin/zero_probe")) : probe_(std::move(probe)) {}

  // Runs the probe on all ranks; the greatest value that any wrote of each name.
  Figures Run(const std::vector<std::string>& arguments, uint32_t ranks, bool succeeds = true) {
    std::filesystem::remove(directory_.File("agent"));
    const auto agent =
        FakeAgent::Start({.socket_path = directory_.File("agent"), .world_size = ranks});
    std::vector<std::string> command = {probe_, arguments[0], directory_.File("figures")};
    command.insert(command.end(), arguments.begin() + 1, arguments.end());
    std::vector<Process> processes;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      std::map<std::string, std::string> variables =
          WorkerVariables(directory_.path(), rank, ranks);
      variables.insert(variables_.begin(), variables_.end());
      // The last rank has a host of its own, as far as the runtime can see.
      if (arguments[1] == "hierarchical" && rank + 1 == ranks) variables["GROUP_RANK"] = "1";
      processes.emplace_back(command, variables, directory_.File("output." + std::to_string(rank)),
                             Process::Start::kForked);
    }
    std::vector<std::future<void>> waits;
    for (Process& process : processes) {
      waits.push_back(std::async(std::launch::async, [&] {
        const int end = process.Wait();
        EXPECT_EQ(end == 0, succeeds) << end << process.Output();
        // The others would wait long for one that never came.
        if (succeeds && end != 0) agent->EndGeneration("a rank failed");
      }));
    }
    for (const std::future<void>& wait : waits) wait.wait();
    Figures figures;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      std::istringstream lines(ReadFile(directory_.File("figures." + std::to_string(rank))));
      double value = 0;
      for (std::string name; lines >> name >> value;) {
        figures[name] = std::max(figures[name], value);
      }
    }
    return figures;
  }

  // The message of a rank's error file.
  std::string Message(uint32_t rank) const {
    const std::string text = ReadFile(directory_.File("error." + std::to_string(rank)));
    return text.empty() ? "" : nlohmann::json::parse(text)["message"]["message"].get<std::string>();
  }

  const std::string probe_;
  std::map<std::string, std::string> variables_;  // on top of a worker's own
  TemporaryDirectory directory_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_ZERO_TESTING_H_
