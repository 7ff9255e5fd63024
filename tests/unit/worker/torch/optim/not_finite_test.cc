#include "worker/torch/optim/not_finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ddprun::worker {
namespace {

const std::vector<torch::ScalarType> kTypes = {torch::kDouble, torch::kFloat, torch::kBFloat16,
                                               torch::kHalf};

// Around the ends of blocks of 4096.
TEST(FindNotFinite, SeesEachValueOfEachType) {
  for (const torch::ScalarType type : kTypes) {
    for (const int64_t count : {1, 2, 4095, 4096, 4097, 8192, 12289}) {
      const torch::Tensor tensor = torch::ones({count}, type);
      EXPECT_EQ(FindNotFinite(tensor), NotFinite::kNothing) << type << count;
      for (const int64_t at : {int64_t{0}, count / 2, count - 1}) {
        tensor[at] = -std::numeric_limits<double>::infinity();
        EXPECT_EQ(FindNotFinite(tensor), NotFinite::kInfinity) << type << count << " " << at;
        tensor[at] = NAN;
        EXPECT_EQ(FindNotFinite(tensor), NotFinite::kNan) << type << count << " " << at;
        tensor[at] = 1;
      }
    }
  }
}

TEST(FindNotFinite, TheLargestAndTheSmallestNumbersAreFinite) {
  for (const torch::ScalarType type : kTypes) {
    double largest = std::numeric_limits<double>::max();
    if (type == torch::kFloat) largest = std::numeric_limits<float>::max();
    if (type == torch::kBFloat16) largest = 3.3895e38;
    if (type == torch::kHalf) largest = 65504;
    const torch::Tensor numbers = torch::tensor({largest, -largest, 0.0, -0.0}, torch::kDouble);
    EXPECT_EQ(FindNotFinite(numbers.to(type)), NotFinite::kNothing) << type;
    if (type == torch::kDouble) continue;
    EXPECT_EQ(FindNotFinite((numbers * 2).to(type)), NotFinite::kInfinity) << type;
  }
  EXPECT_EQ(FindNotFinite(torch::full({3}, std::numeric_limits<float>::denorm_min())),
            NotFinite::kNothing);
}

TEST(FindNotFinite, TheWorseOfBothIsTold) {
  const torch::Tensor both =
      torch::tensor({1.0, std::numeric_limits<double>::infinity(), double{NAN}});
  EXPECT_EQ(FindNotFinite(both), NotFinite::kNan);
}

TEST(FindNotFinite, LooksAtTheTensorsOwnValuesOnly) {
  const torch::Tensor whole = torch::ones({3, 4});
  whole[1][2] = NAN;
  EXPECT_EQ(FindNotFinite(whole.select(1, 2)), NotFinite::kNan);
  EXPECT_EQ(FindNotFinite(whole.select(1, 1)), NotFinite::kNothing);
  EXPECT_EQ(FindNotFinite(whole.t()), NotFinite::kNan);
  const torch::Tensor complex = torch::complex(torch::ones({2}), torch::tensor({1.F, NAN}));
  EXPECT_EQ(FindNotFinite(complex), NotFinite::kNan);
  EXPECT_EQ(FindNotFinite(torch::arange(5)), NotFinite::kNothing);
  EXPECT_EQ(FindNotFinite(torch::full({8}, -1, torch::kByte)), NotFinite::kNothing);
  EXPECT_EQ(FindNotFinite(torch::empty({0})), NotFinite::kNothing);
}

}  // namespace
}  // namespace ddprun::worker
