#include "base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>

namespace ddprun {
namespace {

// The published test vector of SplitMix64.
TEST(RngTest, IsSplitMix64) {
  Rng rng(1234567);
  EXPECT_EQ(rng.Next(), 6457827717110365317U);
  EXPECT_EQ(rng.Next(), 3203168211198807973U);
  EXPECT_EQ(rng.Next(), 9817491932198370423U);
}

TEST(RngTest, StaysBelowTheBoundAndReachesAllOfIt) {
  Rng rng(7);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t number = rng.Below(10);
    ASSERT_LT(number, 10U);
    seen.insert(number);
  }
  EXPECT_EQ(seen.size(), 10U);
}

TEST(RngTest, ChanceIsAPercentage) {
  Rng rng(7);
  int hits = 0;
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_FALSE(rng.Chance(0));
    EXPECT_TRUE(rng.Chance(100));
    hits += rng.Chance(30) ? 1 : 0;
  }
  EXPECT_NEAR(hits, 3000, 200);
}

TEST(RandomNameTest, HasItsLengthAndOnlySafeLetters) {
  const std::string name = RandomName(64);
  EXPECT_EQ(name.size(), 64U);
  EXPECT_TRUE(std::all_of(name.begin(), name.end(), [](unsigned char letter) {
    return std::islower(letter) != 0 || std::isdigit(letter) != 0;
  })) << name;
  EXPECT_NE(RandomName(16), RandomName(16));
  EXPECT_EQ(RandomName(0), "");
}

TEST(RandomNumberTest, DiffersEachTime) { EXPECT_NE(RandomNumber(), RandomNumber()); }

}  // namespace
}  // namespace ddprun
