#include "launcher/core/supervisor/service_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::launcher::service_watch_test {
namespace {

using ::testing::HasSubstr;

// Lease 5 s, joining for 60 s, without the service for 30 s, and for 10 s when no worker goes on.
class ServiceWatchTest : public ::testing::Test {
 protected:
  explicit ServiceWatchTest(absl::Duration reach = absl::InfiniteDuration())
      : watch_(
            {.reach = reach, .loss = absl::Seconds(30), .loss_without_workers = absl::Seconds(10)},
            {.join_timeout = absl::Seconds(60), .lease = absl::Seconds(5)}, "host0:29400",
            Instant()) {}

  ServiceWatch::Decision At(double seconds) {
    ServiceWatch::Decision decision = watch_.OnTimer(Time(seconds));
    EXPECT_EQ(watch_.BrokenInvariant(), "");
    return decision;
  }
  static Instant Time(double seconds) { return Instant() + absl::Seconds(seconds); }

  ServiceWatch watch_;
};

TEST_F(ServiceWatchTest, AServiceThatDoesNotAnswerIsToldOfOnceAndGivenUp) {
  EXPECT_EQ(watch_.Deadline(), Time(1));
  EXPECT_FALSE(At(0.9).tell.has_value());
  const auto told = At(1).tell;
  ASSERT_TRUE(told.has_value());
  EXPECT_THAT(*told, HasSubstr("can't reach the rendezvous service at host0:29400 yet; trying for "
                               "59s more"));
  EXPECT_FALSE(At(2).tell.has_value());
  EXPECT_EQ(watch_.Deadline(), Time(60));
  EXPECT_FALSE(watch_.OnClosed(Time(3), "refused")) << "what never was there isn't lost";
  const auto end = At(60);
  ASSERT_TRUE(end.give_up.has_value());
  EXPECT_EQ(*end.give_up, "no answer within 1m (--rdzv_conf join_timeout); last: refused");
  EXPECT_FALSE(end.tell.has_value());
}

TEST_F(ServiceWatchTest, AnUnknownNameIsNoQuestionOfTheNode) {
  watch_.OnClosed(Time(0.5), "can't resolve host 'host0'", /*name_unknown=*/true);
  EXPECT_TRUE(watch_.is_name_unknown());
  EXPECT_EQ(*At(1).tell,
            "can't reach the rendezvous service at host0:29400 (can't resolve host 'host0'); "
            "trying for 59s more.");
  EXPECT_EQ(watch_.Deadline(), Time(60)) << "a user's name may come";
}

// A scheduler's name, which has to be known.
TEST(ServiceWatchNames, AreGivenUpIfTheResolverInsists) {
  ServiceWatch watch({.unknown_name = absl::Seconds(10)}, {.join_timeout = absl::Seconds(60)},
                     "n1:15000", Instant());
  const auto time = [](int seconds) { return Instant() + absl::Seconds(seconds); };
  watch.OnClosed(time(1), "no such name", /*name_unknown=*/true);
  EXPECT_EQ(watch.Deadline(), time(1));
  EXPECT_THAT(*watch.OnTimer(time(2)).tell, HasSubstr("trying for 9s more."));
  watch.OnClosed(time(8), "the name server is away");
  EXPECT_EQ(watch.Deadline(), time(60)) << "it can't say";
  watch.OnClosed(time(20), "no such name", /*name_unknown=*/true);
  watch.OnClosed(time(29), "no such name", /*name_unknown=*/true);
  EXPECT_EQ(watch.Deadline(), time(30));
  EXPECT_FALSE(watch.OnTimer(time(29)).give_up.has_value());
  EXPECT_EQ(*watch.OnTimer(time(30)).give_up, "no such name.");
  watch.OnWelcome();
  EXPECT_FALSE(watch.is_name_unknown());
  EXPECT_EQ(watch.BrokenInvariant(), "");
}

class ShortReach : public ServiceWatchTest {
 protected:
  ShortReach() : ServiceWatchTest(absl::Seconds(4)) {}
};

TEST_F(ShortReach, CountsAndIsNamed) {
  EXPECT_EQ(*At(4).give_up, "no answer within 4s (--rdzv_conf read_timeout)");
}

TEST_F(ServiceWatchTest, ALostServiceIsToldOfAfterASecondAndGivenUpAfterItsTimeout) {
  watch_.OnWelcome();
  EXPECT_FALSE(watch_.is_joining());
  EXPECT_TRUE(watch_.OnClosed(Time(2), "reset"));
  EXPECT_FALSE(watch_.OnClosed(Time(2.5), "refused")) << "it is lost once";
  EXPECT_FALSE(At(2.9).tell.has_value());
  EXPECT_THAT(*At(3).tell, HasSubstr("lost the rendezvous service at host0:29400 (refused); "
                                     "trying for 29s more; the workers go on"));
  EXPECT_EQ(watch_.Deadline(), Time(32)) << "from the first close on";
  EXPECT_EQ(*At(32).give_up, "no answer within 30s (--service_loss_timeout); last: refused");
}

TEST_F(ServiceWatchTest, AWelcomeEndsTheLoss) {
  watch_.OnWelcome();
  watch_.OnClosed(Time(2), "reset");
  watch_.OnHeard(Time(4));
  watch_.OnWelcome();
  EXPECT_EQ(watch_.Deadline(), Time(9)) << "a lease after the last contact";
  const auto decision = At(8.9);
  EXPECT_FALSE(decision.lost || decision.tell || decision.give_up);
}

TEST_F(ServiceWatchTest, TheReturnIsToldIfTheLossWas) {
  watch_.OnWelcome();
  watch_.OnClosed(Time(2), "reset");
  watch_.OnWelcome();
  EXPECT_FALSE(watch_.TakeReturn(Time(2.5)).has_value()) << "the user never heard of it";
  watch_.OnClosed(Time(3), "reset");
  ASSERT_TRUE(At(4).tell.has_value());
  EXPECT_FALSE(watch_.TakeReturn(Time(5)).has_value()) << "not yet";
  watch_.OnWelcome();
  EXPECT_EQ(*watch_.TakeReturn(Time(14)),
            "the rendezvous service at host0:29400 answers now, after 11s");
  EXPECT_FALSE(watch_.TakeReturn(Time(15)).has_value()) << "once";
}

TEST_F(ServiceWatchTest, SilenceForALeaseIsALossFromTheLastContactOn) {
  watch_.OnHeard(Time(1));
  watch_.OnWelcome();
  const auto decision = At(6);
  EXPECT_EQ(*decision.lost, "silent for 5s");
  EXPECT_THAT(*decision.tell, HasSubstr("(silent for 5s); trying for 25s more"));
  EXPECT_EQ(watch_.Deadline(), Time(31));
  EXPECT_FALSE(watch_.OnClosed(Time(7), "reset")) << "it was lost before";
  EXPECT_TRUE(At(31).give_up.has_value());
}

TEST_F(ServiceWatchTest, WhatSpeaksAgainIsNotLost) {
  watch_.OnHeard(Time(1));
  watch_.OnWelcome();
  ASSERT_TRUE(At(6).lost.has_value());
  watch_.OnHeard(Time(7));
  const auto decision = At(11);
  EXPECT_FALSE(decision.give_up || decision.tell);
  EXPECT_EQ(watch_.Deadline(), Time(12)) << "the next lease";
}

// Found by seed 2455709: no timer is due between the two.
TEST_F(ServiceWatchTest, WhatIsLostAfterItSpokeAgainHasAllItsTime) {
  watch_.OnHeard(Time(1));
  watch_.OnWelcome();
  ASSERT_TRUE(At(6).lost.has_value());
  watch_.OnHeard(Time(30));
  EXPECT_FALSE(watch_.Look(Time(30)).has_value());
  EXPECT_TRUE(watch_.OnClosed(Time(30.5), "reset")) << "another loss";
  EXPECT_EQ(watch_.Look(Time(31))->lasted, absl::Seconds(0.5));
  EXPECT_FALSE(At(31).give_up.has_value());
  EXPECT_FALSE(At(60).give_up.has_value());
  EXPECT_TRUE(At(60.5).give_up.has_value());
}

TEST_F(ServiceWatchTest, WorkersThatCanNotGoOnShortenTheWait) {
  watch_.OnWelcome();
  watch_.OnClosed(Time(2), "reset");
  ASSERT_TRUE(At(3).tell.has_value());
  watch_.OnWorkers(Time(4), true);
  EXPECT_EQ(watch_.Deadline(), Time(32));
  watch_.OnWorkers(Time(6), false);
  EXPECT_EQ(watch_.Deadline(), Time(6)) << "the user is told at once";
  EXPECT_THAT(*At(6).tell, HasSubstr("trying for 10s more; without it this node's workers can't "
                                     "go on"));
  watch_.OnWorkers(Time(8), false);
  EXPECT_EQ(watch_.Deadline(), Time(16)) << "from the first on";
  EXPECT_EQ(*At(16).give_up,
            "no answer within 10s while this node has no workers that could go on "
            "(--service_loss_timeout); last: reset");
}

TEST_F(ServiceWatchTest, TheShortWaitBeginsWithTheLossWhenTheWorkersEndedBefore) {
  watch_.OnWelcome();
  watch_.OnWorkers(Time(1), false);
  EXPECT_FALSE(At(1).tell.has_value()) << "nothing is missing";
  watch_.OnClosed(Time(2), "reset");
  EXPECT_THAT(*At(3).tell, HasSubstr("trying for 9s more; without it"));
  EXPECT_EQ(watch_.Deadline(), Time(12));
  watch_.OnWorkers(Time(5), true);
  EXPECT_EQ(watch_.Deadline(), Time(32)) << "new workers go on";
}

TEST_F(ServiceWatchTest, WhoAsksIsToldSinceWhenAndForHowLong) {
  EXPECT_EQ(watch_.Look(Time(2))->lasted, absl::Seconds(2)) << "it isn't found yet";
  watch_.OnWelcome();
  EXPECT_FALSE(watch_.Look(Time(3)).has_value());
  watch_.OnClosed(Time(4), "reset");
  auto absence = watch_.Look(Time(9));
  ASSERT_TRUE(absence.has_value());
  EXPECT_EQ(absence->lasted, absl::Seconds(5));
  EXPECT_EQ(absence->left, absl::Seconds(25));
  EXPECT_EQ(absence->why, "reset");
  EXPECT_TRUE(absence->workers_go_on);
  watch_.OnWorkers(Time(9), false);
  absence = watch_.Look(Time(12));
  EXPECT_EQ(absence->left, absl::Seconds(7));
  EXPECT_FALSE(absence->workers_go_on);
  EXPECT_EQ(watch_.Look(Time(60))->left, absl::ZeroDuration());
}

TEST_F(ServiceWatchTest, AFailureLateInTheLossDoesNotLengthenIt) {
  watch_.OnWelcome();
  watch_.OnClosed(Time(2), "reset");
  watch_.OnWorkers(Time(28), false);
  EXPECT_EQ(*At(32).give_up, "no answer within 30s (--service_loss_timeout); last: reset");
}

TEST_F(ServiceWatchTest, BothAtOnceAreToldInOneDecision) {
  watch_.OnWelcome();
  const auto decision = At(40);
  EXPECT_TRUE(decision.lost.has_value());
  EXPECT_TRUE(decision.give_up.has_value());
  EXPECT_FALSE(decision.tell.has_value());
}

}  // namespace
}  // namespace ddprun::launcher::service_watch_test
