#include "launcher/core/step_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::launcher::laggards_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Instant Time(double seconds) { return Instant() + absl::Seconds(seconds); }

Laggards Of(uint32_t workers) {
  Laggards laggards;
  laggards.Begin(workers);
  return laggards;
}

TEST(Laggards, AreNamedOnceHalfAMinuteAfterTheLastEnd) {
  Laggards laggards = Of(3);
  EXPECT_TRUE(laggards.Deadline().is_infinite()) << "all train";
  laggards.OnEnded(Time(1), 0, true);
  laggards.OnEnded(Time(9), 2, true);
  EXPECT_THAT(laggards.OnTimer(Time(38.9)), IsEmpty());
  EXPECT_EQ(laggards.Deadline(), Time(39));
  EXPECT_THAT(laggards.OnTimer(Time(39)), ElementsAre(1));
  EXPECT_TRUE(laggards.Deadline().is_infinite());
}

TEST(Laggards, TheLastOfSeveralIsNamedAgain) {
  Laggards laggards = Of(4);
  laggards.OnEnded(Time(0), 0, true);
  EXPECT_THAT(laggards.OnTimer(Time(30)), ElementsAre(1, 2, 3));
  laggards.OnEnded(Time(40), 1, true);
  EXPECT_TRUE(laggards.Deadline().is_infinite()) << "they end one by one";
  laggards.OnEnded(Time(50), 2, true);
  EXPECT_THAT(laggards.OnTimer(Time(80)), ElementsAre(3));
  laggards.OnEnded(Time(90), 3, true);
  EXPECT_TRUE(laggards.Deadline().is_infinite());
}

TEST(Laggards, NobodyIsNamedAfterAFailureOrAStop) {
  Laggards failed = Of(3);
  failed.OnEnded(Time(1), 0, true);
  failed.OnEnded(Time(2), 1, false);
  EXPECT_TRUE(failed.Deadline().is_infinite());
  failed.OnEnded(Time(3), 2, true);
  EXPECT_TRUE(failed.Deadline().is_infinite());
  Laggards stopped = Of(2);
  stopped.OnEnded(Time(1), 0, true);
  stopped.Stop();
  EXPECT_THAT(stopped.OnTimer(Time(60)), IsEmpty());
}

}  // namespace
}  // namespace ddprun::launcher::laggards_test
