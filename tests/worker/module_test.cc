// Modules whose passes reach over two processes, beside what one process computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"

namespace ddprun::testing {
namespace {

class ModuleTest : public ::testing::Test {
 protected:
  void SetUp() override { agent_ = FakeAgent::Start({.socket_path = directory_.File("agent")}); }

  // Runs the probe on two ranks; the greatest value that either wrote of each name.
  std::map<std::string, double> Run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), DDPRUN_MODULE_PROBE);
    arguments.insert(arguments.begin() + 2, directory_.File("figures"));
    std::vector<Process> ranks;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ranks.emplace_back(arguments, WorkerVariables(directory_.path(), rank, 2),
                         directory_.File("output"));
    }
    for (Process& process : ranks) EXPECT_EQ(process.Wait(), 0) << process.Output();
    std::map<std::string, double> figures;
    for (const char* rank : {".0", ".1"}) {
      std::istringstream lines(ReadFile(directory_.File("figures") + rank));
      double value = 0;
      for (std::string name; lines >> name >> value;) {
        figures[name] = std::max(figures[name], value);
      }
    }
    return figures;
  }

  TemporaryDirectory directory_;
  std::unique_ptr<FakeAgent> agent_;
};

class SyncBatchNormTest : public ModuleTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(SyncBatchNormTest, IsBatchNormOfTheJoinedBatch) {
  const std::map<std::string, double> figures = Run({"sync_batch_norm", GetParam()});
  for (const char* name : {"output", "input_gradient", "weight_gradient", "bias_gradient",
                           "running_mean", "running_var", "evaluation"}) {
    ASSERT_TRUE(figures.contains(name)) << name;
    EXPECT_LT(figures.at(name), 1e-5) << name;
    RecordProperty(name, std::to_string(figures.at(name) * 1e9) + "e-9");
  }
  // Twin: every rank for itself is far off. (Unless it has the whole batch.)
  if (std::string(GetParam()) != "0") {
    EXPECT_GT(figures.at("alone"), 1e-2);
  }
}

// How many of the ten samples rank 0 has.
INSTANTIATE_TEST_SUITE_P(Parts, SyncBatchNormTest, ::testing::Values("5", "3", "0"));

TEST_F(ModuleTest, CheckpointedActivationsTrainBitByBitAsPlainOnesInsideDdp) {
  const std::map<std::string, double> figures = Run({"checkpoint"});
  EXPECT_EQ(figures.at("same"), 1);
  // Twin: other random numbers lead elsewhere.
  EXPECT_EQ(figures.at("other_same"), 0);
}

}  // namespace
}  // namespace ddprun::testing
