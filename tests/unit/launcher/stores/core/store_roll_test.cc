#include "launcher/stores/core/store_roll.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::launcher::store_roll_test {
namespace {

using ::testing::ElementsAre;

Instant Time(double seconds) { return Instant() + absl::Seconds(seconds); }

StoreRoll Of(uint32_t world, uint32_t here) {
  StoreRoll roll;
  roll.Begin(world, here);
  return roll;
}

TEST(StoreRoll, NamesOnceWhoHasNotComeAfterTheFirst) {
  StoreRoll roll = Of(4, 4);
  EXPECT_TRUE(roll.Deadline().is_infinite()) << "nobody needs the store yet, or ever";
  roll.OnLocal(Time(60), 2);
  roll.OnLocal(Time(65), 0);
  EXPECT_EQ(roll.Deadline(), Time(70));
  EXPECT_FALSE(roll.OnTimer(Time(69)).any());
  const StoreRoll::Missing missing = roll.OnTimer(Time(70));
  EXPECT_THAT(missing.local_ranks, ElementsAre(1, 3));
  EXPECT_EQ(missing.elsewhere, 0);
  EXPECT_TRUE(roll.Deadline().is_infinite());
}

TEST(StoreRoll, SaysNothingOnceAllHaveCome) {
  StoreRoll roll = Of(3, 2);
  roll.OnLocal(Time(1), 0);
  roll.OnRemote(Time(2), "b#7");
  roll.OnRemote(Time(2), "b#7");
  roll.OnLocal(Time(3), 1);
  EXPECT_TRUE(roll.Deadline().is_infinite());
}

TEST(StoreRoll, CountsRanksOfOtherNodes) {
  StoreRoll roll = Of(4, 1);
  roll.OnRemote(Time(1), "b#7");
  roll.OnLocal(Time(2), 0);
  EXPECT_EQ(roll.OnTimer(Time(11)).elsewhere, 2);
}

TEST(StoreRoll, MissesNobodyThatHasEndedNorWhereAClientIsUnknown) {
  StoreRoll ended = Of(2, 2);
  ended.OnLocal(Time(1), 0);
  ended.OnEnded(1);
  EXPECT_TRUE(ended.Deadline().is_infinite());
  StoreRoll unknown = Of(2, 2);
  unknown.OnLocal(Time(1), 0);
  unknown.OnUnknown();
  EXPECT_TRUE(unknown.Deadline().is_infinite());
}

}  // namespace
}  // namespace ddprun::launcher::store_roll_test
