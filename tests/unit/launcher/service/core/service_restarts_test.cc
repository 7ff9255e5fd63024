#include "launcher/service/core/service_restarts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

constexpr char kKilled[] = "was killed by SIGKILL";

class ServiceRestartsTest : public ::testing::Test {
 protected:
  static Instant Time(double seconds) { return Instant() + absl::Seconds(seconds); }
  ServiceRestarts::Decision Die(double seconds) {
    auto decision = restarts_.OnDeath(Time(seconds), kKilled);
    EXPECT_EQ(restarts_.BrokenInvariant(), "");
    return decision;
  }
  ServiceRestarts::Decision Fail(double seconds, const std::string& error = "taken") {
    auto decision = restarts_.OnFailedStart(Time(seconds), error);
    EXPECT_EQ(restarts_.BrokenInvariant(), "");
    return decision;
  }
  ServiceRestarts::Back Serve(double seconds) {
    const auto back = restarts_.OnServing(Time(seconds));
    EXPECT_EQ(restarts_.BrokenInvariant(), "");
    return back;
  }

  ServiceRestarts restarts_{absl::Seconds(10)};
};

TEST_F(ServiceRestartsTest, ADeadServiceIsStartedAtOnce) {
  EXPECT_EQ(Die(5).start_at, Time(5));
  EXPECT_TRUE(restarts_.is_missing());
  EXPECT_EQ(restarts_.how(), kKilled);
  const auto back = Serve(5.25);
  EXPECT_EQ(back.missing, absl::Milliseconds(250));
  EXPECT_EQ(back.times, 1U);
  EXPECT_FALSE(restarts_.is_missing());
}

TEST_F(ServiceRestartsTest, TheSixthDeathWithinTenSecondsIsTheLast) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Die(i).start_at, Time(i));
    Serve(i + 0.5);
  }
  const auto last = Die(9.9);
  EXPECT_TRUE(last.start_at.is_infinite());
  EXPECT_EQ(last.why,
            "was killed by SIGKILL, for the 6th time within 10s, and is not started again");
}

TEST_F(ServiceRestartsTest, DeathsWithTimeBetweenThemAreBorneForEver) {
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(Die(2 * i).start_at, Time(2 * i));
    EXPECT_EQ(Serve(2 * i + 1).times, static_cast<uint64_t>(i) + 1);
  }
}

TEST_F(ServiceRestartsTest, AStartThatFailsIsTriedAgainAtGrowingDistances) {
  Die(0);
  double now = 0;
  for (const double pause : {0.1, 0.2, 0.4, 0.8, 1.0, 1.0}) {
    EXPECT_EQ(Fail(now).start_at, Time(now) + absl::Seconds(pause));
    now += pause;
  }
  Serve(now);
  Die(now + 20);
  EXPECT_EQ(Fail(now + 20).start_at, Time(now + 20) + absl::Milliseconds(100)) << "it begins anew";
}

TEST_F(ServiceRestartsTest, TheUserIsToldOnceForEachReason) {
  Die(0);
  EXPECT_THAT(*Fail(1).tell, HasSubstr("was killed by SIGKILL and can't be started again yet: "
                                       "taken; trying for 9s more; the workers go on"));
  EXPECT_FALSE(Fail(1.5).tell.has_value());
  EXPECT_TRUE(Fail(2, "no memory").tell.has_value());
  Serve(3);
  Die(4);
  EXPECT_TRUE(Fail(4, "no memory").tell.has_value()) << "another loss";
}

TEST_F(ServiceRestartsTest, ItIsGivenUpWhenAgentsDoWithoutItNoLonger) {
  Die(1);
  EXPECT_FALSE(Fail(10.5).start_at.is_infinite());
  const auto last = Fail(10.95);
  EXPECT_TRUE(last.start_at.is_infinite());
  EXPECT_FALSE(last.tell.has_value());
  EXPECT_EQ(last.why,
            "was killed by SIGKILL and could not be started again within 10s "
            "(--service_loss_timeout): taken");
}

}  // namespace
}  // namespace ddprun::launcher
