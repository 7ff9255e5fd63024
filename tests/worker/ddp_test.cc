// DistributedDataParallel in two processes over the agent's store, beside Python's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"

namespace ddprun::testing {
namespace {

constexpr uint32_t kWorldSize = 2;

// Buffers of the network: the last floats of a dump (mean and variance of 64, and a count).
constexpr size_t kBufferBytes = (64 + 64 + 1) * sizeof(float);

// Starts one process a rank and waits for all; their exit codes must be 0.
void RunRanks(const std::vector<std::string>& command, const TemporaryDirectory& directory) {
  std::vector<Process> ranks;
  for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
    ranks.emplace_back(command, WorkerVariables(directory.path(), rank, kWorldSize),
                       directory.File("output"));
  }
  for (Process& process : ranks) EXPECT_EQ(process.Wait(), 0) << process.Output();
}

std::string TrainedBytes(const TemporaryDirectory& directory, const std::string& file,
                         uint32_t rank) {
  return ReadFile(directory.File(file) + "." + std::to_string(rank));
}

std::string ParametersOf(const std::string& dump) {
  return dump.substr(0, dump.size() - kBufferBytes);
}

// The interpreter of scripts/lib/torch_env.sh's full environment, or of DDPRUN_TEST_PYTHON; "" when
// there is none.
std::string FindPython() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
  };
  if (!variable("DDPRUN_TEST_PYTHON").empty()) return variable("DDPRUN_TEST_PYTHON");
  std::string cache = variable("DDPRUN_CACHE");
  if (cache.empty() && !variable("XDG_CACHE_HOME").empty()) {
    cache = variable("XDG_CACHE_HOME") + "/ddprun";
  }
  if (cache.empty()) cache = variable("HOME") + "/.cache/ddprun";
  const std::string python = cache + "/py-full/bin/python";
  return access(python.c_str(), X_OK) == 0 ? python : "";
}

class DdpTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { agent_ = FakeAgent::Start({.socket_path = directory_.File("agent")}); }

  TemporaryDirectory directory_;
  std::unique_ptr<FakeAgent> agent_;
};

TEST_P(DdpTest, RanksEndWithTheSameParametersBitByBit) {
  const std::string mode = GetParam();
  RunRanks({DDPRUN_PROBE, "train", mode, directory_.File("cpp")}, directory_);
  const std::string first = TrainedBytes(directory_, "cpp." + mode, 0);
  const std::string second = TrainedBytes(directory_, "cpp." + mode, 1);
  ASSERT_GT(first.size(), kBufferBytes);
  EXPECT_EQ(ParametersOf(first), ParametersOf(second));
  // Twin: without the broadcast of buffers the ranks' statistics do differ. (With it they are
  // equal before each step, and drift apart within it.)
  EXPECT_NE(first, second);
}

INSTANTIATE_TEST_SUITE_P(Modes, DdpTest,
                         ::testing::Values("base", "bucket", "view", "view_bucket", "unused",
                                           "static", "no_buffers", "no_sync"));

TEST(DdpPythonTest, TrainsAsPythonDoesBitByBit) {
  const std::string python = FindPython();
  if (python.empty()) {
    GTEST_SKIP()
        << "no Python with torch: make one with 'scripts/lib/torch_env.sh python_torch', or "
           "name one in DDPRUN_TEST_PYTHON";
  }
  const std::vector<std::string> modes = {"base",   "bucket", "view",       "view_bucket",
                                          "unused", "static", "no_buffers", "no_sync"};
  const TemporaryDirectory directory;
  std::vector<std::string> command = {python, DDPRUN_DDP_PROBE_PY, directory.File("python")};
  command.insert(command.end(), modes.begin(), modes.end());
  RunRanks(command, directory);
  for (const std::string& mode : modes) {
    std::filesystem::remove(directory.File("agent"));
    const auto agent = FakeAgent::Start({.socket_path = directory.File("agent")});
    RunRanks({DDPRUN_PROBE, "train", mode, directory.File("cpp")}, directory);
    for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
      const std::string expected = TrainedBytes(directory, "python." + mode, rank);
      ASSERT_GT(expected.size(), kBufferBytes) << mode;
      EXPECT_TRUE(TrainedBytes(directory, "cpp." + mode, rank) == expected)
          << "mode " << mode << ", rank " << rank;
    }
  }
}

}  // namespace
}  // namespace ddprun::testing
