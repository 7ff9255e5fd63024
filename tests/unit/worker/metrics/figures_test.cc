#include "worker/metrics/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

namespace ddprun::worker {
namespace {

using ::testing::Contains;
using ::testing::DoubleEq;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

std::map<std::string, double> Combine(const std::vector<RankFigures>& ranks) {
  const auto values = CombineFigures(ranks);
  return {values.begin(), values.end()};
}

TEST(FiguresTest, ARankAloneShowsItsOwn) {
  const auto values = Combine({{.has_loss = 1,
                                .loss = 0.5,
                                .learning_rate = 1e-3,
                                .steps = 10,
                                .seconds = 2,
                                .samples = 640,
                                .data_seconds = 0.5,
                                .has_gradient_norm = 1,
                                .gradient_norm = 1.5,
                                .host_memory_bytes = 1e8}});
  EXPECT_THAT(values,
              testing::UnorderedElementsAre(
                  Pair("loss", 0.5), Pair("learning_rate", 1e-3), Pair("samples_per_second", 320),
                  Pair("step_seconds", 0.2), Pair("data_seconds", 0.05), Pair("gradient_norm", 1.5),
                  Pair("host_memory_bytes", 1e8)));
}

TEST(FiguresTest, RanksTogether) {
  const auto values = Combine({{.has_loss = 1,
                                .loss = 1,
                                .steps = 1,
                                .seconds = 2,
                                .samples = 10,
                                .data_seconds = 0.25,
                                .host_memory_bytes = 100,
                                .gpu_memory_bytes = 7,
                                .communication_seconds = 0.5,
                                .overlap_seconds = 0.5},
                               {.has_loss = 1,
                                .loss = 3,
                                .steps = 1,
                                .seconds = 1,
                                .samples = 30,
                                .data_seconds = 0.5,
                                .host_memory_bytes = 300,
                                .communication_seconds = 1.5,
                                .overlap_seconds = 0.5}});
  EXPECT_THAT(values, Contains(Pair("loss", 2)));
  EXPECT_THAT(values, Contains(Pair("samples_per_second", 20)));
  EXPECT_THAT(values, Contains(Pair("step_seconds", 2)));
  EXPECT_THAT(values, Contains(Pair("data_seconds", 0.5)));
  EXPECT_THAT(values, Contains(Pair("host_memory_bytes", 300)));
  EXPECT_THAT(values, Contains(Pair("gpu_memory_bytes", 7)));
  EXPECT_THAT(values, Contains(Pair("communication_seconds", 1)));
  EXPECT_THAT(values, Contains(Pair("communication_overlap", 0.5)));
  EXPECT_THAT(values, Not(Contains(Key("gradient_norm"))));
}

TEST(FiguresTest, ALossOfOneRankCountsAlone) {
  EXPECT_THAT(Combine({{.loss = 7}, {.has_loss = 1, .loss = 3}}), Contains(Pair("loss", 3)));
  EXPECT_THAT(Combine({{.loss = 7}}), Not(Contains(Key("loss"))));
  EXPECT_THAT(Combine({{.has_loss = 1, .loss = 2, .loss_weight = 3}, {.has_loss = 1, .loss = 6}}),
              Contains(Pair("loss", 3)));
}

TEST(FiguresTest, ALossThatIsNoNumberIsNotHidden) {
  const auto values = Combine({{.has_loss = 1, .loss = std::numeric_limits<double>::quiet_NaN()},
                               {.has_loss = 1, .loss = 3}});
  EXPECT_TRUE(std::isnan(values.at("loss")));
}

TEST(FiguresTest, TravelAsNumbers) {
  const RankFigures figures = {.loss = 0.25, .overlap_seconds = 4};
  const RankFigures again = FromNumbers(ToNumbers(figures));
  EXPECT_THAT(again.loss, DoubleEq(0.25));
  EXPECT_THAT(again.overlap_seconds, DoubleEq(4));
}

TEST(ProcessMemoryTest, IsSomeMegabytes) {
  EXPECT_GT(ResidentMemoryBytes(), uint64_t{1} << 20);
  EXPECT_LT(ResidentMemoryBytes(), uint64_t{1} << 36);
}

}  // namespace
}  // namespace ddprun::worker
