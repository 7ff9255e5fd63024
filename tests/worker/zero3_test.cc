// ZeRO-3 in real processes: the same bits as DistributedDataParallel, a W-th of the memory, and
// each bug of zero_mutants.toml is noticed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "tests/support/trees.h"
#include "tests/worker/zero_testing.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Zero3Test : public ZeroTest {
 protected:
  explicit Zero3Test(std::string probe = InBuildTree("bin/zero3_probe"))
      : ZeroTest(std::move(probe)) {
    // MKL's products are the same bits wherever a matrix lies in memory.
    variables_["MKL_CBWR"] = "COMPATIBLE";
  }
};

// What is right is judged in the same way where a mutant is awake. "" = right.

// With two ranks a sum has one order, and halving is exact; so is the product with the rate, and an
// update is rounded once. So both trainings compute the same bits, over all steps, though gradients
// depend on what all steps before have left in all parameters.
std::string JudgeEqual(const Figures& figures) {
  if (figures.at("difference") != 0) return "other parameters than with DDP";
  if (figures.at("one_step") == 0) return "nothing is trained";
  if (figures.at("buckets") < 4) return "the model is in too few buckets to try anything";
  return "";
}

// Each bucket is gathered in each pass, all but the first before it is needed, and at most two are
// there at a time.
std::string JudgeGathering(const Figures& figures) {
  if (figures.at("prefetched") != figures.at("gathered") - 1) return "not begun ahead";
  if (figures.at("gathered") != 2 * figures.at("buckets")) return "gathered more often";
  if (figures.at("most_gathered") > 2 * figures.at("largest_bucket")) return "held too long";
  return "";
}

// Adam: P of parameters, P of gradients and 2 P of state, of all a W-th; and 10 %, which the
// shares' rounding to 64 bytes and the embedding's indices stay far below. The most that there was:
// two whole buckets of parameters besides; of gradients three, and their three shares; 2 MiB of
// activations; and one gradient on its way into a bucket, the largest of 64 x 12288 floats.
std::string JudgeMemory(const Figures& figures, uint32_t ranks) {
  const double formula = 4 * figures.at("parameters") / ranks;
  if (std::abs(figures.at("live") - formula) > 0.1 * formula) return "allocated otherwise";
  if (std::abs(figures.at("answered") - formula) > 0.1 * formula) return "answered otherwise";
  const double bucket = figures.at("largest_bucket");
  if (figures.at("gathered") > 2 * bucket) return "more than two buckets gathered";
  if (figures.at("buckets") > 3 * bucket) return "more than three buckets of gradients";
  const double most = formula + figures.at("gathered") + figures.at("buckets") * (1 + 1.0 / ranks);
  constexpr double kGradient = 64 * 12288 * 4;
  if (figures.at("most") > most + kGradient + 2 * (1 << 20))
    return "more at once than the docs say";
  return "";
}

std::string JudgeUse(const Figures& figures) {
  for (const auto& [name, failed] : figures) {
    if (failed != 0) return name;
  }
  return figures.size() == 6 ? "" : "something wasn't tried";
}

class Zero3EqualTest : public Zero3Test, public ::testing::WithParamInterface<const char*> {};

TEST_P(Zero3EqualTest, TrainsTheSameBitsAsDdpOverAHundredSteps) {
  const std::string way = GetParam();
  // What a way changes is the same over both.
  for (const char* backend : {"shm", "gloo"}) {
    if (backend == std::string("gloo") && way != "plain" && !TestsWhole()) continue;
    const Figures figures = Run({"equal", backend, way}, 2);
    EXPECT_EQ(JudgeEqual(figures), "") << backend << " " << figures.at("difference");
    if (way == "plain") {
      EXPECT_EQ(JudgeGathering(figures), "") << backend;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Trainings, Zero3EqualTest,
                         ::testing::Values("plain", "checkpointed", "bf16", "no_sync", "frozen",
                                           "offload", "scaler"),
                         [](const auto& parameter) { return parameter.param; });

TEST_F(Zero3Test, HoldsAWthOfEverything) {
  for (const uint32_t ranks : {2, 3}) {
    EXPECT_EQ(JudgeMemory(Run({"memory", "shm", "-"}, ranks), ranks), "") << ranks;
  }
}

TEST_F(Zero3Test, ParametersAreWholeWhereverTheyAreUsed) {
  EXPECT_EQ(JudgeUse(Run({"use", "shm", "-"}, 2)), "");
  EXPECT_EQ(JudgeUse(Run({"use", "gloo", "-"}, 3)), "");
}

TEST_F(Zero3Test, UnusedParametersAreRefused) {
  Run({"wrong", "gloo", "unused"}, 2, /*succeeds=*/false);
  EXPECT_THAT(Message(0), HasSubstr("find_unused_parameters doesn't go with stage 3"));
}

TEST_F(Zero3Test, SavingWeightsThatAreSharedOutIsRefused) {
  Run({"wrong", "gloo", "save"}, 2, /*succeeds=*/false);
  EXPECT_THAT(Message(0), HasSubstr("' is in the shares of a ZeroOptimizer (stage 3): hold what"));
}

TEST_F(Zero3Test, ParametersWhoseOptimizerIsGoneSaySo) {
  Run({"wrong", "gloo", "gone"}, 2, /*succeeds=*/false);
  EXPECT_THAT(Message(0), HasSubstr("in the shares of a ZeroOptimizer (stage 3) that is gone"));
}

// The probe with the bugs of zero_mutants.toml, all asleep but one.
class Zero3MutantTest : public Zero3Test {
 protected:
  Zero3MutantTest() : Zero3Test(InBuildTree("bin/zero3_mutated_probe")) {}
  void Wake(const char* mutant) { variables_["AWAKE_MUTANT"] = mutant; }
};

TEST_F(Zero3MutantTest, TwinAllAsleep) {
  const Figures figures = Run({"equal", "shm", "plain"}, 2);
  EXPECT_EQ(JudgeEqual(figures), "");
  EXPECT_EQ(JudgeGathering(figures), "");
}

TEST_F(Zero3MutantTest, ABackwardPassThatDoesNotGatherEndsElsewhere) {
  Wake("no_second_gather");
  EXPECT_EQ(JudgeEqual(Run({"equal", "shm", "plain"}, 2)), "other parameters than with DDP");
}

TEST_F(Zero3MutantTest, ParametersFromBeforeTheStepEndElsewhere) {
  Wake("kept_through_the_step");
  EXPECT_EQ(JudgeEqual(Run({"equal", "shm", "plain"}, 2)), "other parameters than with DDP");
}

TEST_F(Zero3MutantTest, ABlockThatIsNotFreedIsSeen) {
  Wake("never_freed");
  EXPECT_EQ(JudgeMemory(Run({"memory", "shm", "-"}, 2), 2), "more than two buckets gathered");
}

TEST_F(Zero3MutantTest, AMissingPrefetchIsSeen) {
  Wake("no_prefetch");
  EXPECT_EQ(JudgeGathering(Run({"equal", "shm", "plain"}, 2)), "not begun ahead");
}

TEST_F(Zero3MutantTest, AChangeThatIsLostIsSeen) {
  Wake("change_lost");
  EXPECT_EQ(JudgeUse(Run({"use", "shm", "-"}, 2)), "failed_changed");
}

}  // namespace
}  // namespace ddprun::testing
