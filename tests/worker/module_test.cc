// Modules whose passes reach over two processes, beside what one process computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/trees.h"
#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"

namespace ddprun::testing {
namespace {

class ModuleTest : public ::testing::Test {
 protected:
  // Runs the probe on two ranks; the greatest value that either wrote of each name.
  std::map<std::string, double> Run(std::vector<std::string> arguments) const {
    std::filesystem::remove(directory_.File("agent"));
    const auto agent = FakeAgent::Start({.socket_path = directory_.File("agent")});
    arguments.insert(arguments.begin(), InBuildTree("bin/module_probe"));
    arguments.insert(arguments.begin() + 2, directory_.File("figures"));
    std::vector<Process> ranks;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ranks.emplace_back(arguments, WorkerVariables(directory_.path(), rank, 2),
                         directory_.File("output"), Process::Start::kForked);
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
};

class SyncBatchNormTest : public ModuleTest, public ::testing::WithParamInterface<const char*> {};

// How far two correct ones may be apart, in u, half a unit in the last place of 1. A channel has
// n = 160 values of mean 1 and deviation 3. In whatever order they are added,
// - the mean is off by n u of the mean size of a value, 1.33 deviations: 213 u;
// - the variance by (n + 3) u of itself, its root by half of that;
// - so a normalised value, at most 4.5, by 213 u + 4.5 x 87 u: 604 u;
// - the gradients of weight and bias, for each value that they are a sum of, with factors of mean
//   size 0.8, by 0.8 x 604 u and n u of the mean size of a product, 0.8: 611 u;
// - the gradient of an input by 4.5 x 611 u from the latter, 128 u from the mean of the factors and
//   0.3 x 604 u from the value itself, over a deviation of at least 2.5: 1,230 u.
// Running statistics take over a tenth of each step's. All are below 1,250 u; two are twice apart.
constexpr double kApart = 2 * 1250;

TEST_P(SyncBatchNormTest, IsBatchNormOfTheJoinedBatch) {
  const std::map<std::string, double> figures = Run({"sync_batch_norm", GetParam()});
  for (const std::string type : {"float_", "double_"}) {
    const double bound = kApart * std::ldexp(1.0, type == "float_" ? -24 : -53);
    for (const char* quantity : {"output", "input_gradient", "weight_gradient", "bias_gradient",
                                 "running_mean", "running_var", "evaluation"}) {
      const std::string name = type + quantity;
      ASSERT_TRUE(figures.contains(name)) << name;
      EXPECT_LT(figures.at(name), bound) << name;
      std::ostringstream text;
      text << figures.at(name) << " of " << bound;
      RecordProperty(name, text.str());
    }
    // Negative control: every rank for itself is far off. (Unless it has the whole batch.)
    if (std::string(GetParam()) != "0") {
      EXPECT_GT(figures.at(type + "alone"), 50 * bound);
    }
  }
}

// How many of the ten samples rank 0 has.
INSTANTIATE_TEST_SUITE_P(Parts, SyncBatchNormTest, ::testing::Values("5", "3", "0"));

TEST_F(ModuleTest, CheckpointedActivationsTrainBitByBitAsPlainOnesInsideDdp) {
  const std::map<std::string, double> figures = Run({"checkpoint"});
  EXPECT_EQ(figures.at("same"), 1);
  // Negative control: other random numbers lead elsewhere.
  EXPECT_EQ(figures.at("other_same"), 0);
}

// A number that is read waits for the device.
TEST_F(ModuleTest, ASessionReadsTheLossOnlyWhereItIsReported) {
  const double reads = Run({"reads", "1"}).at("reads");
  EXPECT_EQ(Run({"reads", "4"}).at("reads"), reads);
  // Negative control: with a journal the loss of each of the 25 steps is read.
  EXPECT_GE(Run({"reads", "4", directory_.File("journal")}).at("reads"), reads + 25);
}

// safetensors' own save_model and load_model, over a module with tied weights, a bfloat16 layer and
// counts.
TEST_F(ModuleTest, WeightsGoToPythonAndBack) {
  const std::string python = FindPython("py-launchers");
  if (python.empty()) {
    GTEST_SKIP() << "no Python with safetensors; scripts/setup makes it";
  }
  const std::string from = directory_.File("python.safetensors");
  const std::string to = directory_.File("cpp.safetensors");
  const auto run = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {python, InSourceTree("tests/worker/weights_probe.py")};
    command.insert(command.end(), arguments.begin(), arguments.end());
    Process process(command, {}, directory_.File("output"));
    const int end = process.Wait();
    return end == 0 ? "" : process.Output();
  };
  ASSERT_EQ(run({"write", from}), "");
  Run({"weights", from, to});
  // Negative control: what Python wrote isn't what it then looks for.
  EXPECT_EQ(run({"check", to, from}), "");
}

}  // namespace
}  // namespace ddprun::testing
