// ZeroOptimizer in real processes: what it computes, what it holds, and what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>
#include <string>
#include <tuple>

#include "tests/support/rounding.h"
#include "tests/worker/zero_testing.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

// How far apart two correct trainings of the probe may end. Their gradients are the same bits
// (zero_probe.cc says why); an element that is in a vector register in one is in the rest of an
// array in the other. Clipping multiplies a gradient by a factor that is off by 9 u: the squares
// add up without rounding, and then come a root for each tensor (1), the sum of at most nine
// squares (9 / 2) and its root (1), the factor as a float (1), the product (1).
double BoundOf(const std::string& way, double largest, uint32_t ranks) {
  constexpr double kSteps = 30;
  constexpr double kBatch = 12;
  // Sums of whole numbers times powers of two: nothing is rounded.
  if (way == "_exact") return 0;
  if (way == "_sgd") {
    return 2 * SgdRounding({.rate = 1.0 / 4096,
                            .largest = largest,
                            .gradient = kBatch * ranks,
                            .steps = kSteps,
                            .momentum = 0.9});
  }
  const bool clips = way == "_clip" || way == "_scaler";
  return 2 * AdamWRounding({.rate = 1e-3,
                            .largest = largest,
                            .steps = kSteps,
                            .gradient_error = clips ? 9.0 : 0.0});
}

class ZeroTrainingTest : public ZeroTest,
                         public ::testing::WithParamInterface<std::tuple<const char*, uint32_t>> {
 protected:
  // Records how much of the bound is used, for --gtest_output=json.
  static void Notify(const std::string& name, double difference, double bound) {
    std::ostringstream text;
    text << difference << " of " << bound;
    RecordProperty(name, text.str());
  }
};

TEST_P(ZeroTrainingTest, EndsWhereDdpWithTheFusedOptimizerDoes) {
  const auto& [backend, ranks] = GetParam();
  // More ranks than the machine may have cores take long, and differ in the shares only; over Gloo
  // a ZeRO-2 reduces and doesn't scatter.
  const bool all = ranks == 2 && (backend == std::string("shm") || TestsWhole());
  const Figures figures = Run({"train", backend, all ? "all" : "few"}, ranks);
  int compared = 0;
  int mistakes = 0;  // negative controls
  for (const auto& [name, largest] : figures) {
    if (!name.starts_with("largest")) continue;
    const std::string way = name.substr(std::strlen("largest"));
    const double bound = BoundOf(way, largest, ranks);
    for (const char* zero :
         {"zero1", "zero1_offload", "zero2", "zero2_offload", "zero3", "zero3_offload"}) {
      if (!figures.contains(zero + way)) continue;
      ++compared;
      Notify(zero + way, figures.at(zero + way), bound);
      EXPECT_LE(figures.at(zero + way), bound) << zero << way;
    }
    for (const char* mistake : {"wrong_alone", "wrong_stale", "wrong_sum", "wrong_norm"}) {
      if (!figures.contains(mistake + way)) continue;
      ++mistakes;
      Notify(mistake + way, figures.at(mistake + way), bound);
      EXPECT_GT(figures.at(mistake + way), 50 * bound) << mistake << way;
    }
  }
  EXPECT_EQ(compared, all ? 38 : 18);
  EXPECT_EQ(mistakes, 4);
  // With and without offloading the same kernel moves the same elements: the figures are the same.
  EXPECT_EQ(figures.at("zero2"), figures.at("zero2_offload"));
  EXPECT_EQ(figures.at("zero3"), figures.at("zero3_offload"));
  for (const auto& [name, value] : figures) {
    if (name.starts_with("same_on_ranks")) {
      EXPECT_EQ(value, 0) << name;
    }
  }
}

using World = std::tuple<const char*, uint32_t>;
INSTANTIATE_TEST_SUITE_P(Worlds, ZeroTrainingTest,
                         ::testing::ValuesIn(FewOrAll<World>({World("gloo", 3), World("shm", 2),
                                                              World("hierarchical", 3)},
                                                             {World("gloo", 2), World("shm", 3)})),
                         [](const auto& parameter) {
                           return std::string(std::get<0>(parameter.param)) +
                                  std::to_string(std::get<1>(parameter.param));
                         });

class ZeroMemoryTest : public ZeroTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  static void ExpectAbout(double value, double expected, const std::string& what) {
    EXPECT_NEAR(value, expected, 0.05 * expected) << what;
  }
};

// Adam: 4 bytes a gradient, 8 a parameter's state. The process' own count of live bytes and what
// Memory() answers both agree with the formula.
TEST_P(ZeroMemoryTest, IsAWthOfStateAndGradients) {
  const uint32_t ranks = GetParam();
  const Figures ddp = Run({"memory", "shm", "ddp"}, ranks);
  const double gradients = ddp.at("parameters");
  const double state = 2 * gradients;
  ExpectAbout(ddp.at("live"), gradients + state, "DDP");
  const Figures first = Run({"memory", "shm", "1"}, ranks);
  ExpectAbout(first.at("live"), gradients + state / ranks, "ZeRO-1");
  const Figures second = Run({"memory", "shm", "2"}, ranks);
  ExpectAbout(second.at("live"), (gradients + state) / ranks, "ZeRO-2");
  const Figures third = Run({"memory", "shm", "3"}, ranks);
  ExpectAbout(third.at("live") + gradients, (2 * gradients + state) / ranks, "ZeRO-3");
  ExpectAbout(third.at("own_parameters"), gradients / ranks, "parameters of ZeRO-3");
  for (const Figures& zero : {first, second, third}) {
    EXPECT_EQ(zero.at("all_parameters"), gradients);
    ExpectAbout(zero.at("state"), state / ranks, "state");
    ExpectAbout(zero.at("all_state"), state, "all state");
    EXPECT_EQ(zero.at("all_gradients"), gradients);
  }
  ExpectAbout(first.at("gradients"), gradients, "gradients of ZeRO-1");
  ExpectAbout(second.at("gradients"), gradients / ranks, "gradients of ZeRO-2");
  ExpectAbout(third.at("gradients"), gradients / ranks, "gradients of ZeRO-3");
  // During a step of ZeRO-2 there are at most three buckets more (the largest has 3 MiB), their
  // shares, and the few activations.
  EXPECT_LT(second.at("most"), second.at("live") + second.at("buckets") * 2 + (1 << 20));
  EXPECT_LE(second.at("buckets"), 4.5 * (1 << 20));
}

TEST_P(ZeroMemoryTest, OffloadingCostsACopyOfTheShare) {
  const uint32_t ranks = GetParam();
  const Figures offloaded = Run({"memory", "shm", "2_offload"}, ranks);
  ExpectAbout(offloaded.at("offloaded"), offloaded.at("parameters") / ranks, "copies");
  ExpectAbout(offloaded.at("live"), 4 * offloaded.at("parameters") / ranks, "all");
  // In stage 3 there is no other.
  const Figures third = Run({"memory", "shm", "3_offload"}, ranks);
  ExpectAbout(third.at("offloaded"), third.at("parameters") / ranks, "copies");
  EXPECT_EQ(third.at("own_parameters"), 0);
  ExpectAbout(third.at("live") + third.at("parameters"), 4 * third.at("parameters") / ranks, "all");
}

INSTANTIATE_TEST_SUITE_P(Worlds, ZeroMemoryTest, ::testing::Values(2U, 3U));

TEST_F(ZeroTest, TheFirstStepPrintsTheMemoryOfRankZero) {
  Run({"memory", "shm", "2"}, 2);
  EXPECT_THAT(ReadFile(directory_.File("output.0")),
              HasSubstr("ddprun: rank 0 of 2, ZeRO-2: parameters 4.1 MiB, gradients 2.0 of 4.1 "
                        "MiB, optimizer state 4.1 of 8.1 MiB, buckets up to "));
  EXPECT_THAT(ReadFile(directory_.File("output.1")), ::testing::Not(HasSubstr("ZeRO-2")));
}

TEST_F(ZeroTest, BucketsLeaveWhileTheBackwardPassGoesOn) {
  const Figures figures = Run({"overlap", "gloo", "-"}, 2);
  EXPECT_GE(figures.at("buckets"), 3);
  // The last one waits for the first layer.
  EXPECT_EQ(figures.at("sent_before_the_end"), figures.at("buckets") - 1);
  EXPECT_EQ(figures.at("sent"), figures.at("buckets"));
  // Negative control: where nothing is to be averaged, none leaves.
  EXPECT_EQ(figures.at("sent_in_no_sync"), 0);
}

TEST_F(ZeroTest, AParameterWithoutGradientIsNamed) {
  Run({"wrong", "gloo", "unused"}, 2, /*succeeds=*/false);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_THAT(Message(rank), HasSubstr("parameter 'extra.weight' and 1 more got no gradient"));
  }
}

TEST_F(ZeroTest, ASecondGradientBeforeAllHadTheirFirstIsNamed) {
  Run({"wrong", "gloo", "second"}, 2, /*succeeds=*/false);
  EXPECT_THAT(Message(0), HasSubstr("got a second gradient before 'extra.weight' got its first"));
}

TEST_F(ZeroTest, ANanInOneRanksShareIsNamedOnAllRanks) {
  Run({"wrong", "gloo", "nan"}, 2, /*succeeds=*/false);
  EXPECT_THAT(Message(0), HasSubstr("' has a NaN or infinite value"));
  EXPECT_EQ(Message(0), Message(1));
}

// Negative control of the above: with a GradScaler it is no error.
TEST_F(ZeroTest, AnOverflowInOneRanksShareIsLeftOutByAll) { Run({"wrong", "gloo", "overflow"}, 2); }

TEST_F(ZeroTest, ClippingPastTheSharesIsRefused) {
  Run({"wrong", "gloo", "clip"}, 2, /*succeeds=*/false);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_THAT(Message(rank), HasSubstr("' is in the shares of a ZeroOptimizer (stage 2 or 3)"));
  }
}

TEST_F(ZeroTest, OptionsThatDifferBetweenRanksAreNamed) {
  Run({"wrong", "gloo", "options"}, 2, /*succeeds=*/false);
  for (const uint32_t rank : {0, 1}) EXPECT_THAT(Message(rank), HasSubstr("ZeRO stage 1"));
}

}  // namespace
}  // namespace ddprun::testing
