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
Ledger FormedLedger() {
  Ledger ledger;
  ledger.Begin(LedgerAt(0));
  ledger.Form(LedgerAt(100));
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
  ledger.Form(LedgerAt(2280));
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
  Ledger ledger = FormedLedger();
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
  ledger.Form(LedgerAt(1100));
  ledger.Report(LedgerAt(1400), 0, NodeTime{.last = LedgerMs(300)}, false);
  EXPECT_EQ(ledger.Spent(LedgerAt(1400))[TimeCause::kRestart], LedgerMs(300));
  EXPECT_EQ(ledger.Spent(LedgerAt(1400))[TimeCause::kUnmarked], LedgerMs(0));
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
  EXPECT_DEATH(ledger.Form(later), "nobody waited for");
}

}  // namespace
}  // namespace ddprun::rendezvous
