// What the detector has from the counts of collectives: suspicions of programs that mark, before
// their steps are known; and what it must not have from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "launcher/core/hang_detector.h"

namespace ddprun::launcher {
namespace {

using rendezvous::HangReport;

// Two workers at the top of step 1; rank 0 waits in a collective.
class HangEarlyTest : public ::testing::Test {
 protected:
  HangEarlyTest() {
    detector_.OnOpened(now_);
    Mark(ProgressPhase::kTrain, 1);
  }

  void Mark(ProgressPhase phase, uint64_t step) {
    words_ = {PackProgress(phase, step), PackProgress(phase, step)};
  }

  // The first report on a suspect within `by`.
  std::optional<HangReport> Suspicion(absl::Duration by) {
    for (const Instant end = now_ + by; now_ < end;) {
      const Instant next = std::min(detector_.NextLook(), detector_.NextSample());
      now_ = std::min(end, std::max(now_ + absl::Milliseconds(1), next));
      if (detector_.NextLook() <= now_) detector_.OnWords(now_, words_, begun_);
      if (detector_.NextSample() <= now_) detector_.OnVitals(now_, vitals_);
      const std::optional<HangReport> report = detector_.TakeReport();
      if (report.has_value() && report->any_suspect()) return report;
    }
    return std::nullopt;
  }

  Instant now_;
  HangDetector detector_{HangSettings(), 2, now_};
  std::vector<uint64_t> words_;
  std::vector<uint64_t> begun_ = {5, 4};
  std::vector<WorkerVital> vitals_ = {{.alive = true, .state = 'S', .where = "futex"},
                                      {.alive = true, .state = 'S', .where = "futex"}};
};

TEST_F(HangEarlyTest, CollectivesLetBeSuspectedBeforeStepsAreKnown) {
  const std::optional<HangReport> report = Suspicion(absl::Seconds(7));
  ASSERT_TRUE(report.has_value());
  EXPECT_GE(now_ - Instant(), kCountedUnlearned);
  EXPECT_TRUE(report->workers[0].early);
  EXPECT_EQ(report->workers[0].collectives, 5U);
  EXPECT_EQ(report->workers[1].collectives, 4U);
  EXPECT_EQ(report->workers[1].phase, ProgressPhase::kTrain);
  EXPECT_FALSE(report->workers[1].expired);
}

TEST_F(HangEarlyTest, WithoutCountsTheFirstStepHasItsTime) {
  begun_.clear();
  EXPECT_FALSE(Suspicion(absl::Seconds(500)).has_value());
  const std::optional<HangReport> report = Suspicion(absl::Seconds(200));
  ASSERT_TRUE(report.has_value());
  EXPECT_FALSE(report->workers[1].early);
}

TEST_F(HangEarlyTest, AfterTheFirstStepsTimeItIsASuspicionLikeOthers) {
  ASSERT_TRUE(Suspicion(absl::Seconds(7)).has_value());
  std::optional<HangReport> last;
  while (now_ < Instant() + absl::Seconds(620)) {
    if (auto report = Suspicion(absl::Seconds(10))) last = report;
  }
  ASSERT_TRUE(last.has_value());
  EXPECT_FALSE(last->workers[1].early);
}

TEST_F(HangEarlyTest, ASaveIsNoneOfItsSteps) {
  Mark(ProgressPhase::kCheckpoint, 1);
  EXPECT_FALSE(Suspicion(absl::Seconds(500)).has_value());
}

// A step lasts from mark to mark, however many collectives are in it.
TEST(HangCollectives, CollectivesDontShortenSteps) {
  Instant now;
  HangDetector detector(HangSettings(), 1, now);
  detector.OnOpened(now);
  for (uint64_t step = 1; step < 30; ++step) {
    for (uint64_t part = 0; part < 10; ++part) {
      now = now + absl::Milliseconds(20);
      const uint64_t begun = 2 * step + (part < 5 ? 0 : 1);
      detector.OnWords(now, {PackProgress(ProgressPhase::kCounted, step)}, {begun});
    }
  }
  EXPECT_EQ(detector.step_time(), absl::Milliseconds(200));
  EXPECT_GE(detector.limits(0).suspect, absl::Seconds(4.5)) << "10 steps and 2.5 s";
}

}  // namespace
}  // namespace ddprun::launcher
