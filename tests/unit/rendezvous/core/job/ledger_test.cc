#include "rendezvous/core/job/ledger.h"

#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

constexpr Instant LedgerAt(int64_t ms) { return Instant::FromNanoseconds(ms * 1'000'000); }
constexpr absl::Duration LedgerMs(int64_t ms) { return absl::Milliseconds(ms); }

NodeTime TimeOf(int64_t start_ms, int64_t training_ms, int64_t last_ms,
                TimeCause last_in = TimeCause::kTraining) {
  NodeTime time{.last = LedgerMs(last_ms), .last_in = last_in};
  time.spent[TimeCause::kStartUp] = LedgerMs(start_ms);
  time.spent[TimeCause::kTraining] = LedgerMs(training_ms);
  return time;
}

// Formed at 100 ms.
Ledger FormedLedger(size_t nodes = 1) {
  Ledger ledger;
  ledger.Begin(LedgerAt(0));
  ledger.Form(LedgerAt(100), nodes);
  return ledger;
}

TEST(Ledger, BooksTheWaitForNodes) {
  Ledger ledger;
  EXPECT_EQ(ledger.Spent(LedgerAt(5)).Total(), LedgerMs(0));
  ledger.Begin(LedgerAt(10));
  ledger.Begin(LedgerAt(20));  // a second node
  EXPECT_EQ(ledger.Spent(LedgerAt(60))[TimeCause::kRendezvous], LedgerMs(50));
}

TEST(Ledger, WhatNobodyMarksIsUnmarked) {
  const Ledger ledger = FormedLedger();
  EXPECT_EQ(ledger.Spent(LedgerAt(400))[TimeCause::kUnmarked], LedgerMs(300));
}

TEST(Ledger, ALiveGenerationGoesOnAsItWasLastTold) {
  Ledger ledger = FormedLedger();
  ledger.Report(LedgerAt(1100), 0, TimeOf(200, 790, 10), /*done=*/false);
  const TimeSpent spent = ledger.Spent(LedgerAt(1500));
  EXPECT_EQ(spent[TimeCause::kStartUp], LedgerMs(200));
  EXPECT_EQ(spent[TimeCause::kTraining], LedgerMs(790 + 10 + 400));
  EXPECT_EQ(spent.Total(), LedgerMs(1500));
}

TEST(Ledger, AFaultThatTookTimeToFindIsDetection) {
  Ledger ledger = FormedLedger();
  // Lost at 1000 ms at the earliest; the workers of the other node stood still from 1150 ms on.
  ledger.Close(LedgerAt(2150), LedgerAt(1000));
  ledger.Report(LedgerAt(2160), 1, TimeOf(200, 850, 1000), /*done=*/false);
  ledger.Settle(LedgerAt(2250));
  ledger.Form(LedgerAt(2280), 1);
  ledger.Report(LedgerAt(3280), 0, TimeOf(300, 700, 0), /*done=*/false);
  const TimeSpent spent = ledger.Spent(LedgerAt(3280));
  EXPECT_EQ(spent[TimeCause::kDetection], LedgerMs(1000));
  EXPECT_EQ(spent[TimeCause::kTraining], LedgerMs(850 + 700));
  EXPECT_EQ(spent[TimeCause::kRestart], LedgerMs(100 + 300));
  EXPECT_EQ(spent[TimeCause::kRendezvous], LedgerMs(100 + 30));
  EXPECT_EQ(spent[TimeCause::kStartUp], LedgerMs(200));
  EXPECT_EQ(spent.Total(), LedgerMs(3280));
}

TEST(Ledger, TwinWithoutAFaultTheSameTimeWasTraining) {
  Ledger ledger = FormedLedger();
  ledger.Close(LedgerAt(2150), std::nullopt);
  ledger.Report(LedgerAt(2160), 1, TimeOf(200, 850, 1000), /*done=*/false);
  const TimeSpent spent = ledger.Spent(LedgerAt(2150));
  EXPECT_EQ(spent[TimeCause::kDetection], LedgerMs(0));
  EXPECT_EQ(spent[TimeCause::kTraining], LedgerMs(1850));
}

TEST(Ledger, AFaultThatWasSeenAtOnceCostsNoDetection) {
  Ledger ledger = FormedLedger();
  ledger.Close(LedgerAt(2150), LedgerAt(2150));
  ledger.Report(LedgerAt(2160), 0, TimeOf(200, 1800, 50), /*done=*/false);
  EXPECT_EQ(ledger.Spent(LedgerAt(2150))[TimeCause::kDetection], LedgerMs(0));
}

TEST(Ledger, TheLowestRankThatToldItsEndSpeaks) {
  Ledger ledger = FormedLedger(2);
  ledger.Report(LedgerAt(900), 0, TimeOf(1, 700, 0), false);  // and is lost
  ledger.Close(LedgerAt(1100), LedgerAt(1100));
  ledger.Report(LedgerAt(1110), 2, TimeOf(600, 400, 0), false);
  ledger.Report(LedgerAt(1120), 1, TimeOf(500, 500, 0), false);
  EXPECT_EQ(ledger.Spent(LedgerAt(1100))[TimeCause::kStartUp], LedgerMs(500));
}

TEST(Ledger, ANodeThatIsDoneWaitsForTheOthers) {
  Ledger ledger = FormedLedger();
  ledger.Report(LedgerAt(1000), 0, TimeOf(200, 700, 0), /*done=*/true);
  ledger.End(LedgerAt(1600));
  const TimeSpent spent = ledger.Spent(LedgerAt(9000));
  EXPECT_EQ(spent[TimeCause::kEnding], LedgerMs(600));
  EXPECT_EQ(spent.Total(), LedgerMs(1600));
}

TEST(Ledger, MoreThanTheTimeThatWasIsCut) {
  Ledger ledger = FormedLedger();
  ledger.Report(LedgerAt(200), 0, TimeOf(1'000'000, 5'000'000, 40), false);
  const TimeSpent spent = ledger.Spent(LedgerAt(200));
  EXPECT_EQ(spent.Total(), LedgerMs(200));
  for (const absl::Duration part : spent.by) EXPECT_GE(part, absl::ZeroDuration());
}

TEST(Ledger, WorkersThatMarkedBeforeWereOnTheirWay) {
  Ledger ledger = FormedLedger();
  ledger.Close(LedgerAt(1100), LedgerAt(1100));
  ledger.Report(LedgerAt(1100), 0, TimeOf(200, 800, 0), false);
  ledger.Settle(LedgerAt(1100));
  ledger.Form(LedgerAt(1100), 1);
  ledger.Report(LedgerAt(1400), 0, NodeTime{.last = LedgerMs(300)}, false);
  EXPECT_EQ(ledger.Spent(LedgerAt(1400))[TimeCause::kRestart], LedgerMs(300));
  EXPECT_EQ(ledger.Spent(LedgerAt(1400))[TimeCause::kUnmarked], LedgerMs(0));
}

TEST(LedgerCounts, TimeOnItsWayIsNotCountedBeforeItIsKnown) {
  Ledger ledger = FormedLedger();
  // 300 ms of the generation are in no report yet: of the books they are `other`, for now.
  ledger.Report(LedgerAt(1100), 0, TimeOf(200, 500, 0), /*done=*/false);
  EXPECT_EQ(ledger.Spent(LedgerAt(1100))[TimeCause::kOther], LedgerMs(300));
  EXPECT_EQ((*ledger.Counted(LedgerAt(1100)))[TimeCause::kOther], LedgerMs(0));
  EXPECT_EQ((*ledger.Counted(LedgerAt(1100)))[TimeCause::kTraining], LedgerMs(500));
  EXPECT_EQ((*ledger.Counted(LedgerAt(1100)))[TimeCause::kRendezvous], LedgerMs(100));
  ledger.Report(LedgerAt(2100), 0, TimeOf(200, 1795, 0), /*done=*/false);
  EXPECT_EQ(ledger.Spent(LedgerAt(2100))[TimeCause::kOther], LedgerMs(5));
  EXPECT_EQ((*ledger.Counted(LedgerAt(2100)))[TimeCause::kTraining], LedgerMs(1795));
}

TEST(LedgerCounts, WhatEachNodeHasToldIsCounted) {
  Ledger ledger = FormedLedger(2);
  ledger.Report(LedgerAt(1100), 0, TimeOf(200, 780, 20), /*done=*/false);
  EXPECT_EQ((*ledger.Counted(LedgerAt(1100)))[TimeCause::kTraining], LedgerMs(0));
  ledger.Report(LedgerAt(1100), 1, TimeOf(210, 770, 20), /*done=*/false);
  ledger.Report(LedgerAt(1110), 0, TimeOf(200, 790, 20), /*done=*/false);
  EXPECT_EQ((*ledger.Counted(LedgerAt(1110)))[TimeCause::kTraining], LedgerMs(770));
  EXPECT_EQ((*ledger.Counted(LedgerAt(1110)))[TimeCause::kStartUp], LedgerMs(200));
}

TEST(LedgerCounts, ANodeThatSpeaksForALostOneTakesNothingBack) {
  Ledger ledger = FormedLedger(2);
  ledger.Report(LedgerAt(1100), 1, TimeOf(150, 850, 0), /*done=*/false);
  ledger.Report(LedgerAt(1100), 0, TimeOf(200, 800, 0), /*done=*/false);
  ledger.Close(LedgerAt(1101), LedgerAt(600));
  // Node 1 says at its end that it has evaluated: more than fits beside what is counted.
  NodeTime time = TimeOf(150, 100, 0);
  time.spent[TimeCause::kEvaluation] = LedgerMs(900);
  ledger.Report(LedgerAt(1110), 1, time, /*done=*/false);
  ledger.Settle(LedgerAt(1150));
  const TimeSpent spent = ledger.Spent(LedgerAt(1150));
  EXPECT_EQ(spent.Total(), LedgerMs(1150));
  EXPECT_EQ(spent[TimeCause::kTraining], LedgerMs(800));
  EXPECT_EQ((*ledger.Counted(LedgerAt(1150)))[TimeCause::kTraining], LedgerMs(800));
  EXPECT_EQ(ledger.BrokenInvariant(LedgerAt(1150)), "");
}

// The record was made when the generation was formed, 100 ms after the job's begin. Another machine
// goes on with it; its clock doesn't show how long ago that was.
TEST(LedgerCounts, ARecoveryGoesOnWhereTheAgentsAre) {
  Ledger former = FormedLedger(2);
  const LedgerRecord record = former.ToRecord(LedgerAt(100));
  for (const uint32_t rank : {1, 0}) {
    former.Report(LedgerAt(5100), rank, TimeOf(200, 4700, 100), /*done=*/false);
  }
  EXPECT_EQ((*former.Counted(LedgerAt(5100)))[TimeCause::kTraining], LedgerMs(4700));

  Ledger ledger;
  const Instant now = LedgerAt(70'000);
  ledger.Recover(now, record, /*formed=*/now, std::nullopt, /*ended=*/false, /*nodes=*/2);
  EXPECT_FALSE(ledger.Counted(now).has_value());
  ledger.FormedBefore(LedgerAt(70'000 - 5500));  // node 1: so much since its assignment
  ledger.Report(now, 1, TimeOf(200, 5200, 100), /*done=*/false);
  EXPECT_FALSE(ledger.Counted(now).has_value());
  ledger.Report(now, 0, TimeOf(200, 5100, 200), /*done=*/false);
  EXPECT_EQ((*ledger.Counted(now))[TimeCause::kTraining], LedgerMs(5100));
  EXPECT_EQ((*ledger.Counted(now))[TimeCause::kRendezvous], LedgerMs(100));
  EXPECT_EQ(ledger.Age(now), LedgerMs(5600));
  EXPECT_EQ(ledger.BrokenInvariant(now), "");
}

// The record of a job has the age of its generation twice, here and in the round's, and both must
// agree: a generation that is ending when the service comes back keeps the one it has.
TEST(LedgerCounts, ARecoveredGenerationThatEndsKeepsItsAge) {
  const LedgerRecord record = FormedLedger().ToRecord(LedgerAt(100));
  Ledger ledger;
  const Instant now = LedgerAt(70'000);
  ledger.Recover(now, record, /*formed=*/now, /*closed=*/now, /*ended=*/false, /*nodes=*/1);
  EXPECT_FALSE(ledger.recovers());
  EXPECT_FALSE(ledger.Counted(now).has_value());
  ledger.Report(now, 0, TimeOf(200, 4700, 100), /*done=*/false);
  EXPECT_EQ(ledger.Age(now), LedgerMs(100));
  ledger.Settle(now);
  EXPECT_TRUE(ledger.Counted(now).has_value());
}

// The record was made 300 ms after the first node had joined, on another machine. An agent knows
// that the job is 9 s old: all the time since was spent waiting.
TEST(LedgerCounts, AWaitThatARecordDoesNotKnowIsTheAgents) {
  Ledger former;
  former.Begin(LedgerAt(0));
  const LedgerRecord record = former.ToRecord(LedgerAt(300));
  Ledger ledger;
  const Instant now = LedgerAt(70'000);
  ledger.Recover(now, record, std::nullopt, std::nullopt, /*ended=*/false, /*nodes=*/0);
  EXPECT_EQ(ledger.Age(now), LedgerMs(300));
  EXPECT_FALSE(ledger.Counted(now).has_value());
  EXPECT_EQ(ledger.BegunBefore(LedgerAt(61'000)), LedgerMs(8700));
  EXPECT_EQ(ledger.BegunBefore(LedgerAt(62'000)), absl::ZeroDuration()) << "another knows less";
  EXPECT_EQ(ledger.Age(now), LedgerMs(9000));
  EXPECT_EQ((*ledger.Counted(now))[TimeCause::kRendezvous], LedgerMs(9000));
  ledger.Form(now, 1);
  EXPECT_EQ(ledger.BegunBefore(LedgerAt(0)), absl::ZeroDuration());
  EXPECT_EQ(ledger.BrokenInvariant(now), "");
}

// The same while a generation ends: its workers took that long to stop.
TEST(LedgerCounts, AnEndThatARecordDoesNotKnowIsTheAgents) {
  Ledger former = FormedLedger(1);
  former.Close(LedgerAt(600), std::nullopt);
  const LedgerRecord record = former.ToRecord(LedgerAt(600));
  Ledger ledger;
  const Instant now = LedgerAt(70'000);
  ledger.Recover(now, record, LedgerAt(69'500), /*closed=*/now, /*ended=*/false, /*nodes=*/1);
  EXPECT_EQ(ledger.BegunBefore(LedgerAt(61'000)), LedgerMs(8400));
  ledger.Settle(now);
  EXPECT_EQ(ledger.Age(now), LedgerMs(9000));
  EXPECT_EQ((*ledger.Counted(now))[TimeCause::kRestart], LedgerMs(8400));
  EXPECT_EQ(ledger.BrokenInvariant(now), "");
}

// A wrong node may say anything: what is counted stays within the time that was, and stays.
TEST(LedgerCounts, WrongReportsMakeNoCounterFall) {
  uint64_t seed = 7;
  const auto below = [&seed](uint64_t bound) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    return (seed >> 33) % bound;
  };
  Ledger ledger;
  Instant now = LedgerAt(1);
  ledger.Begin(now);
  TimeSpent before;
  size_t live = 0;  // events of the generation; 0 = none is live
  for (int i = 0; i < 20'000; ++i) {
    now = now + LedgerMs(static_cast<int64_t>(below(300)));
    if (live == 0) {
      ledger.Form(now, 1 + below(3));
      live = 1;
    } else if (below(20) == 0) {
      ledger.Close(now, now - LedgerMs(static_cast<int64_t>(below(500))));
      ledger.Report(now, 1, TimeOf(40, static_cast<int64_t>(below(4000)), 100), false);
      ledger.Settle(now + LedgerMs(3));
      now = now + LedgerMs(3);
      live = 0;
    } else {
      ++live;
      NodeTime time = TimeOf(40, static_cast<int64_t>(below(150) * live), 100);
      time.spent[TimeCause::kCheckpoint] = LedgerMs(static_cast<int64_t>(below(900)));
      ledger.Report(now, static_cast<uint32_t>(below(3)), time, false);
    }
    const std::optional<TimeSpent> counted = ledger.Counted(now);
    ASSERT_TRUE(counted.has_value());
    for (size_t cause = 0; cause < kTimeCauses; ++cause) {
      ASSERT_GE(counted->by[cause], before.by[cause]) << "at event " << i;
    }
    ASSERT_EQ(ledger.BrokenInvariant(now), "");
    before = *counted;
  }
}

TEST(LedgerInvariants, ItsTimeIsThatSinceItBegan) {
  Ledger ledger;
  const Instant start = Instant() + absl::Seconds(9);
  EXPECT_EQ(ledger.Age(start), absl::ZeroDuration());
  ledger.Begin(start);
  const Instant later = start + absl::Seconds(4);
  EXPECT_EQ(ledger.Age(later), absl::Seconds(4));
  EXPECT_EQ(ledger.BrokenInvariant(later), "");
  ledger.End(later);
  EXPECT_EQ(ledger.BrokenInvariant(later + absl::Seconds(1)), "") << "nothing is booked any more";
  Ledger never;
  never.End(later);
  EXPECT_EQ(never.BrokenInvariant(later), "") << "a job may end before anybody joined";
  EXPECT_DEATH(ledger.Form(later, 1), "nobody waited for");
}

}  // namespace
}  // namespace ddprun::rendezvous
