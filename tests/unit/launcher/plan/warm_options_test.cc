// --warm and --preload.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

TEST(WarmOptions, Defaults) {
  const LaunchPlan plan = PlanOf("train.py");
  EXPECT_FALSE(plan.warm.on) << "nothing is started again";
  EXPECT_TRUE(plan.warm.preload.empty());
  EXPECT_TRUE(plan.runs_python);
}

TEST(WarmOptions, ItIsOnByItselfWhereWorkersMayStartAgain) {
  for (const char* line : {"--max_restarts 3 train.py", "--in_process_restart train.py",
                           "--nnodes 1:2 --rdzv_endpoint n0 train.py"}) {
    const LaunchPlan plan = PlanOf(line);
    EXPECT_TRUE(plan.warm.on) << line;
    EXPECT_TRUE(plan.warm.unasked) << line;
  }
  EXPECT_FALSE(PlanOf("--max_restarts 3 --warm off train.py").warm.on);
  EXPECT_FALSE(PlanOf("--max_restarts 3 --no_python echo").warm.on);
  for (const char* line : {"--warm on", "--preload torch", "--warm_memory 2GiB"}) {
    const LaunchPlan plan = PlanOf(absl::StrCat("--max_restarts 3 ", line, " train.py"));
    EXPECT_TRUE(plan.warm.on) << line;
    EXPECT_FALSE(plan.warm.unasked) << line;
  }
}

TEST(WarmOptions, ItIsOnForScriptsThatNameElastic) {
  FakeHost host;
  for (const auto& [text, is_on] :
       {std::pair("from ddprun import elastic\n", true), std::pair("import torch\n", false),
        std::pair("# elastic, as torchrun's\n", false)}) {
    host.files["train.py"] = text;
    const LaunchPlan plan = PlanOf("train.py", {}, host);
    EXPECT_EQ(plan.warm.on, is_on) << text;
    EXPECT_EQ(plan.warm.unasked, is_on) << text;
    EXPECT_FALSE(PlanOf("--warm off train.py", {}, host).warm.on) << text;
  }
}

TEST(WarmOptions, Values) {
  const LaunchPlan plan = PlanOf("--warm on --preload torch,torch.nn.parallel train.py");
  EXPECT_TRUE(plan.warm.on);
  EXPECT_EQ(plan.warm.preload, (std::vector<std::string>{"torch", "torch.nn.parallel"}));
  EXPECT_TRUE(PlanOf("train.py", {{"PET_WARM", "on"}}).warm.on);
}

TEST(WarmOptions, ProgramsWhoseWorkersLiveOnStartWarmUnlessTheUserSaysOtherwise) {
  const std::map<std::string, std::string> home = {{"HOME", "/users/me"}};
  const WarmPlan unsaid = PlanOf("--no_python echo", home).warm;
  EXPECT_TRUE(unsaid.for_survivors);
  EXPECT_FALSE(unsaid.on);
  for (const char* said : {"--warm on --no_python echo", "--warm off --no_python echo"}) {
    EXPECT_FALSE(PlanOf(said, home).warm.for_survivors) << said;
  }
  EXPECT_FALSE(PlanOf("train.py", home).warm.for_survivors);
  EXPECT_NE(unsaid.kept, PlanOf("--warm on --no_python echo", home).warm.kept);
}

TEST(WarmOptions, WhatIsLearnedIsKeptByScriptAndEnvironment) {
  const std::map<std::string, std::string> home = {{"HOME", "/users/me"}};
  const std::string kept = PlanOf("train.py", home).warm.kept;
  EXPECT_EQ(kept.rfind("/users/me/.cache/ddprun/warm/train.py-", 0), 0U) << kept;
  EXPECT_EQ(PlanOf("train.py", home).warm.kept, kept);
  EXPECT_NE(PlanOf("train.py", {{"HOME", "/users/me"}, {"PYTHONPATH", "/a"}}).warm.kept, kept);
  EXPECT_EQ(PlanOf("train.py", {{"XDG_CACHE_HOME", "/c"}, {"HOME", "/users/me"}})
                .warm.kept.rfind("/c/ddprun/warm/", 0),
            0U);
  EXPECT_EQ(PlanOf("train.py").warm.kept, "");
}

TEST(WarmOptions, Memory) {
  EXPECT_EQ(PlanOf("train.py").warm.memory_bytes, std::nullopt);
  EXPECT_EQ(PlanOf("--warm_memory 1.5GiB train.py").warm.memory_bytes, uint64_t{3} << 29);
  EXPECT_EQ(PlanOf("--warm_memory 512MiB train.py").warm.memory_bytes, uint64_t{512} << 20);
  EXPECT_EQ(PlanOf("--warm_memory 0 train.py").warm.memory_bytes, uint64_t{0});
  const WarmPlan percent = PlanOf("--warm_memory 2.5% train.py").warm;
  EXPECT_EQ(percent.memory_percent, 2.5);
  EXPECT_EQ(percent.memory_bytes, std::nullopt);
}

TEST(WarmOptions, Refusals) {
  const Refused kCases[] = {
      {"--warm maybe train.py", 2, "--warm 'maybe': is neither on nor off"},
      {"--warm_memory much train.py", 1, "--warm_memory 'much': is no size (2GiB, 512MiB)"},
      {"--warm_memory -1 train.py", 1, "is no size"},
      {"--warm_memory 101% train.py", 1, "is no size"},
      {"--warm_memory 5GB train.py", 1, "is no size"},
      {"--preload torch,,numpy train.py", 1, "'' is no name of a Python module"},
      {"--preload ../x.py train.py", 1, "'../x.py' is no name of a Python module"},
      {"--preload torch,.nn train.py", 1, "'.nn' is no name of a Python module"},
  };
  for (const Refused& refused : kCases) ExpectRefused(refused);
}

}  // namespace
}  // namespace ddprun::launcher
