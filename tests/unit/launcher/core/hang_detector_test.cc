#include "launcher/core/hang_detector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace ddprun::launcher {
namespace {

using rendezvous::Activity;
using rendezvous::HangReport;
using ::testing::HasSubstr;

// Two workers. A test sets their progress words and what /proc shows; time goes from look to look.
class HangDetectorTest : public ::testing::Test {
 protected:
  explicit HangDetectorTest(HangSettings settings = {}) : detector_(settings, 2, Instant()) {}

  void Mark(uint32_t worker, ProgressPhase phase, uint64_t step) {
    words_[worker] = PackProgress(phase, step);
  }

  // Lets the time go by, with every look and sample that the detector wants. Returns the reports.
  std::vector<HangReport> Advance(absl::Duration by) {
    std::vector<HangReport> reports;
    const Instant end = now_ + by;
    for (;;) {
      const Instant next = std::min(detector_.NextLook(), detector_.NextSample());
      if (next > end) break;
      now_ = std::max(now_, next);
      if (detector_.NextLook() <= now_) {
        ++looks_;
        detector_.OnWords(now_, words_);
      }
      if (detector_.NextSample() <= now_) {
        ++samples_;
        detector_.OnVitals(now_, vitals_);
      }
      if (auto report = detector_.TakeReport()) reports.push_back(*report);
    }
    now_ = end;
    return reports;
  }

  // Lets the workers train until their limits are known.
  void Learn(int steps = 1100, absl::Duration step = absl::Milliseconds(100)) {
    detector_.OnOpened(now_);
    for (int i = 0; i < steps; ++i) {
      Mark(0, ProgressPhase::kTrain, ++step_);
      Mark(1, ProgressPhase::kTrain, step_);
      for (const HangReport& report : Advance(step)) {
        EXPECT_FALSE(report.any_suspect()) << "step " << step_;
      }
    }
  }

  HangDetector detector_;
  Instant now_;
  uint64_t step_ = 0;
  std::vector<uint64_t> words_ = {0, 0};
  std::vector<WorkerVital> vitals_ = {{.alive = true, .stack = "futex", .where = "futex"},
                                      {.alive = true, .stack = "futex", .where = "futex"}};
  int looks_ = 0;
  int samples_ = 0;
};

TEST_F(HangDetectorTest, NoTimerBeforeAPageIsOpened) {
  EXPECT_TRUE(detector_.NextLook().is_infinite());
  EXPECT_TRUE(detector_.NextSample().is_infinite());
  Advance(absl::Hours(10));
  EXPECT_EQ(looks_, 0);
  EXPECT_FALSE(detector_.marked(0));
}

TEST_F(HangDetectorTest, LooksAreFewAndBounded) {
  Learn();
  EXPECT_TRUE(detector_.marked(1));
  EXPECT_EQ(samples_, 0);
  looks_ = 0;
  Learn(100);  // 10 s
  EXPECT_GE(looks_, 10 * 8);
  EXPECT_LE(looks_, 10 * 100);
}

TEST_F(HangDetectorTest, AnOpenedPageWithoutAMarkIsLookedAtLessAndLess) {
  detector_.OnOpened(now_);
  Advance(absl::Seconds(60));
  looks_ = 0;
  Advance(absl::Seconds(60));
  EXPECT_LE(looks_, 61);
}

TEST_F(HangDetectorTest, AStoppedWorkerIsReportedAfterTheLimitAndTwoLooks) {
  Learn();
  vitals_[1].state = 'T';
  std::optional<absl::Duration> took;
  const Instant begin = now_;
  while (!took.has_value() && now_ - begin < absl::Seconds(10)) {
    Mark(0, ProgressPhase::kTrain, ++step_);
    for (const HangReport& report : Advance(absl::Milliseconds(100))) {
      if (!report.any_suspect()) continue;
      took = now_ - begin;
      ASSERT_EQ(report.workers.size(), 2U);
      EXPECT_FALSE(report.workers[0].suspect);
      EXPECT_TRUE(report.workers[1].suspect);
      EXPECT_EQ(report.workers[1].activity, Activity::kStopped);
      EXPECT_EQ(report.workers[1].phase, ProgressPhase::kTrain);
    }
  }
  ASSERT_TRUE(took.has_value());
  // 3 × 100 ms + 0.5 s, a bucket's 9 %, a look, two samples of 100 ms.
  EXPECT_LE(*took, absl::Milliseconds(1200));
  EXPECT_GE(*took, absl::Milliseconds(700));
}

TEST_F(HangDetectorTest, StillMeansTwoSamplesWithoutASign) {
  Learn();
  const std::vector<HangReport> reports = Advance(absl::Seconds(3));
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.front().workers[0].activity, Activity::kStill);
  EXPECT_EQ(reports.front().workers[0].where, "futex");
  EXPECT_GE(reports.front().workers[0].silent,
            absl::Milliseconds(800) + 2 * absl::Milliseconds(390));
}

TEST_F(HangDetectorTest, EverySignOfLifeCounts) {
  Learn();
  const auto with = [&](auto change) {
    std::optional<Activity> seen;
    for (int i = 0; i < 60 && !seen.has_value(); ++i) {
      change(vitals_[0], i);
      for (const HangReport& report : Advance(absl::Milliseconds(100))) {
        if (report.any_suspect()) seen = report.workers[0].activity;
      }
    }
    Learn();  // both go on
    return seen;
  };
  EXPECT_EQ(with([](WorkerVital& v, int) { v.cpu += absl::Milliseconds(50); }), Activity::kActive);
  EXPECT_EQ(with([](WorkerVital& v, int) { v.bytes += 1; }), Activity::kActive);
  EXPECT_EQ(with([](WorkerVital& v, int) { v.turns += 5; }), Activity::kActive);
  EXPECT_EQ(with([](WorkerVital& v, int i) { v.stack = i % 2 == 0 ? "read" : "futex"; }),
            Activity::kActive);
  EXPECT_EQ(with([](WorkerVital& v, int) { v.state = 'D'; }), Activity::kActive);
  vitals_[0].state = 'S';
  // Loops around a wait with a timeout, and the threads of libraries that wake now and then.
  EXPECT_EQ(with([](WorkerVital& v, int i) { v.turns += i % 5 == 0; }), Activity::kStill);
  EXPECT_EQ(with([](WorkerVital& v, int i) { v.cpu += absl::Milliseconds(i % 20 == 0 ? 10 : 0); }),
            Activity::kStill);
}

TEST_F(HangDetectorTest, AMarkTakesASuspicionBack) {
  Learn();
  EXPECT_FALSE(Advance(absl::Seconds(2)).empty());
  EXPECT_TRUE(detector_.any_suspect());
  EXPECT_TRUE(detector_.StillStands(0));
  Mark(0, ProgressPhase::kTrain, ++step_);
  Mark(1, ProgressPhase::kTrain, step_);
  const std::vector<HangReport> reports = Advance(absl::Milliseconds(50));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_FALSE(reports[0].any_suspect());
  EXPECT_FALSE(detector_.any_suspect());
  EXPECT_TRUE(detector_.NextSample().is_infinite());
}

TEST_F(HangDetectorTest, WhatMarkedSinceItWasToldStandsNoMore) {
  Learn();
  Advance(absl::Seconds(2));
  Mark(0, ProgressPhase::kTrain, ++step_);
  detector_.OnWords(now_, words_);
  EXPECT_FALSE(detector_.StillStands(0));
  EXPECT_TRUE(detector_.StillStands(1));
}

TEST_F(HangDetectorTest, PhasesAreLearnedApart) {
  Learn();
  for (int i = 0; i < 5; ++i) {  // a few checkpoints of a minute
    Mark(0, ProgressPhase::kCheckpoint, step_);
    Mark(1, ProgressPhase::kCheckpoint, step_);
    EXPECT_TRUE(Advance(absl::Seconds(60)).empty());
    Learn(50);
  }
  Mark(0, ProgressPhase::kEvaluation, step_);
  Mark(1, ProgressPhase::kIdle, step_);
  EXPECT_TRUE(Advance(absl::Seconds(590)).empty());
  EXPECT_FALSE(Advance(absl::Seconds(40)).empty()) << "the first-step timeout";
}

TEST_F(HangDetectorTest, IdleAndDoneAreNotTimed) {
  Learn();
  Mark(0, ProgressPhase::kIdle, step_);
  Mark(1, ProgressPhase::kDone, step_);
  EXPECT_TRUE(Advance(absl::Hours(1)).empty());
  EXPECT_LE(looks_, 3700 + 1100 * 10);
  EXPECT_EQ(samples_, 0);
}

TEST_F(HangDetectorTest, TheFirstStepIsNoStepLikeTheOthers) {
  detector_.OnOpened(now_);
  Mark(0, ProgressPhase::kStart, 0);
  Advance(absl::Seconds(100));
  Mark(0, ProgressPhase::kTrain, 1);
  Advance(absl::Seconds(300));  // compiles
  for (step_ = 1; step_ < 1100; ++step_) {
    Mark(0, ProgressPhase::kTrain, step_ + 1);
    Advance(absl::Milliseconds(100));
  }
  EXPECT_FALSE(Advance(absl::Seconds(3)).empty()) << "300 s were not learned";
}

TEST_F(HangDetectorTest, WhoEndedIsNotMissed) {
  Learn();
  detector_.OnEnded(0);
  detector_.OnEnded(1);
  EXPECT_TRUE(Advance(absl::Hours(1)).empty());
}

TEST_F(HangDetectorTest, AnswersWhenAsked) {
  detector_.OnAsked(now_, absl::Milliseconds(300));
  const std::vector<HangReport> reports = Advance(absl::Seconds(5));
  ASSERT_EQ(reports.size(), 1U) << "once, because nobody is suspect";
  EXPECT_EQ(reports[0].workers.size(), 2U);
  EXPECT_EQ(reports[0].workers[0].activity, Activity::kStill);
  EXPECT_EQ(samples_, 3);
  EXPECT_TRUE(detector_.NextSample().is_infinite());
}

TEST_F(HangDetectorTest, RepeatsItselfLessAndLess) {
  Learn();
  const size_t reports = Advance(absl::Seconds(100)).size();
  EXPECT_GE(reports, 20U);
  EXPECT_LE(reports, 50U) << "28 while a pause grows from 1 to 4 s, and 17 after that";
}

// What can be proven only later is proven soon, too: a new suspect isn't looked at with the long
// pauses of another one.
TEST_F(HangDetectorTest, ANewSuspectIsSampledAtOnce) {
  Learn();
  detector_.OnEnded(1);
  Mark(0, ProgressPhase::kTrain, ++step_);
  Advance(absl::Seconds(60));
  const Instant before = now_;
  Mark(0, ProgressPhase::kTrain, ++step_);
  std::optional<absl::Duration> took;
  while (!took.has_value() && now_ - before < absl::Seconds(10)) {
    for (const HangReport& report : Advance(absl::Milliseconds(100))) {
      if (report.any_suspect()) took = now_ - before;
    }
  }
  ASSERT_TRUE(took.has_value());
  EXPECT_LE(*took, absl::Seconds(3));
}

TEST_F(HangDetectorTest, ASuspectExpiresAfterTheTimeThatAHangMayLast) {
  Learn();
  std::optional<absl::Duration> expired;
  for (const HangReport& report : Advance(absl::Seconds(700))) {
    if (report.workers[0].expired && !expired) expired = report.workers[0].silent;
  }
  ASSERT_TRUE(expired.has_value());
  EXPECT_GE(*expired, absl::Seconds(600));
  EXPECT_LE(*expired, absl::Seconds(605));
}

// Torch's own time-out is longer where a script has set it so, and stays known while the witness is
// silent.
TEST_F(HangDetectorTest, ALongerTimeoutOfTheProcessGroupCounts) {
  Learn();
  detector_.OnWitnesses({Witness{.timeout = absl::Minutes(30)}, Witness{}});
  detector_.OnWitnesses({Witness{}, Witness{}});
  EXPECT_EQ(detector_.end_after(0), absl::Minutes(30));
  EXPECT_EQ(detector_.end_after(1), absl::Minutes(10)) << "negative control";
}

TEST_F(HangDetectorTest, WhatAJobHasSurvivedItMaySurviveAgain) {
  Learn();
  Advance(absl::Minutes(8));
  Mark(0, ProgressPhase::kTrain, ++step_);
  Mark(1, ProgressPhase::kTrain, step_);
  Advance(absl::Seconds(2));
  EXPECT_GE(detector_.survived(), absl::Minutes(8));
  EXPECT_GE(detector_.end_after(0), absl::Minutes(24));
}

// Scripts without an optimizer of torch's: their collectives show progress.
TEST_F(HangDetectorTest, CollectivesAreProgressWhereThereAreNoSteps) {
  detector_.OnOpened(now_);
  std::vector<uint64_t> begun = {1, 1};
  const auto look = [&](absl::Duration by) {
    std::vector<HangReport> reports;
    for (const Instant end = now_ + by; now_ < end;) {
      now_ = now_ + absl::Milliseconds(250);
      detector_.OnWords(now_, words_, begun);
      if (detector_.NextSample() <= now_) {
        detector_.OnWitnesses({Witness{.collectives = begun[0]}, Witness{.collectives = begun[1]}});
        detector_.OnVitals(now_, vitals_);
      }
      if (auto report = detector_.TakeReport()) reports.push_back(*report);
    }
    return reports;
  };
  for (int i = 0; i < 50; ++i) {
    begun = {begun[0] + 2, begun[1] + 2};
    EXPECT_TRUE(look(absl::Milliseconds(250)).empty());
  }
  begun[1] += 1;
  const std::vector<HangReport> reports = look(absl::Seconds(6));
  ASSERT_FALSE(reports.empty());
  EXPECT_TRUE(reports[0].workers[0].suspect);
  EXPECT_EQ(reports[0].workers[0].phase, ProgressPhase::kCounted);
  EXPECT_EQ(reports[0].workers[0].collectives + 1, reports[0].workers[1].collectives);
  EXPECT_THAT(detector_.Describe(0, now_), HasSubstr("no collective for"));
  begun[0] += 1;
  look(absl::Seconds(1));
  EXPECT_FALSE(detector_.suspect(0));
}

// A slow start is no step, and neither are the collectives before the first one.
TEST_F(HangDetectorTest, ASlowStartTeachesNothing) {
  detector_.OnOpened(now_);
  detector_.OnWords(now_, words_, {1, 1});
  now_ = now_ + absl::Seconds(20);
  detector_.OnWords(now_, words_, {3, 3});
  now_ = now_ + absl::Seconds(15);
  detector_.OnWords(now_, words_, {4, 4});
  for (int i = 0; i < 400; ++i) {
    Mark(0, ProgressPhase::kCounted, ++step_);
    Mark(1, ProgressPhase::kCounted, step_);
    Advance(absl::Milliseconds(40));
  }
  EXPECT_LE(detector_.limits(0).suspect, absl::Seconds(4));
}

// A worker in a call that keeps the interpreter to itself begins no more collectives.
TEST_F(HangDetectorTest, TheCountsOfASilentWitnessStand) {
  detector_.OnOpened(now_);
  detector_.OnWords(now_, words_, {7, 9});
  detector_.OnWitnesses({Witness{}, Witness{.collectives = 9}});
  const std::vector<HangReport> reports = Advance(absl::Seconds(8));
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports[0].workers[0].collectives, 7U);
  EXPECT_EQ(reports[0].workers[1].collectives, 9U);
}

// The end of a worker says what the others wait with only if its witness had the last word.
TEST_F(HangDetectorTest, AWorkerThatLeftIsReportedWithItsGroups) {
  Learn();
  const Witness last{.final = true, .groups = {{"0", 4, 2}}};
  detector_.OnWitnesses({Witness{}, last});
  detector_.OnEnded(1, true);
  const std::vector<HangReport> reports = Advance(absl::Seconds(3));
  ASSERT_FALSE(reports.empty());
  ASSERT_EQ(reports[0].workers.size(), 2U);
  EXPECT_TRUE(reports[0].workers[1].left);
  EXPECT_EQ(reports[0].workers[1].groups, last.groups);
}

TEST_F(HangDetectorTest, TwinOneThatFailedOrWasNotFinalIsLeftOut) {
  for (const bool well : {false, true}) {
    HangDetector detector({}, 2, Instant());
    detector.OnWitnesses({Witness{}, Witness{.final = !well, .groups = {{"0", 4, 2}}}});
    detector.OnEnded(1, well);
    detector.OnAsked(Instant(), absl::Milliseconds(250));
    std::optional<HangReport> report;
    for (int i = 1; i < 10 && !report; ++i) {
      detector.OnVitals(Instant() + i * absl::Seconds(1), vitals_);
      report = detector.TakeReport();
    }
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->workers.size(), 1U);
  }
}

TEST_F(HangDetectorTest, BusyBecomesOverdue) {
  Learn();
  std::optional<absl::Duration> overdue;
  for (int i = 0; i < 300 && !overdue.has_value(); ++i) {
    for (WorkerVital& vital : vitals_) vital.cpu += absl::Milliseconds(100);
    for (const HangReport& report : Advance(absl::Milliseconds(100))) {
      EXPECT_EQ(report.workers[0].activity, Activity::kActive);
      if (report.workers[0].overdue) overdue = report.workers[0].silent;
    }
  }
  ASSERT_TRUE(overdue.has_value());
  EXPECT_GE(*overdue, kBusyLeast);
  EXPECT_LE(*overdue, kBusyLeast + absl::Seconds(1));
}

// A Session's loop evaluates without a mark, longer than any step.
TEST_F(HangDetectorTest, BusyAfterAStepOfALibraryIsNotOverdue) {
  for (int i = 0; i < 60; ++i) {
    words_ = {kProgressStepOnly << 56 | ++step_, kProgressStepOnly << 56 | step_};
    Advance(absl::Milliseconds(100));
  }
  for (int i = 0; i < 1200; ++i) {
    for (WorkerVital& vital : vitals_) vital.cpu += absl::Milliseconds(100);
    for (const HangReport& report : Advance(absl::Milliseconds(100))) {
      EXPECT_FALSE(report.workers[0].overdue) << report.workers[0].silent;
      EXPECT_EQ(report.workers[0].phase, ProgressPhase::kCounted);
      EXPECT_EQ(report.workers[0].step, step_);
    }
  }
}

TEST_F(HangDetectorTest, WhoTurnsInCirclesIsOverdueSooner) {
  Learn();
  detector_.OnWitnesses({{.looks = 12, .places = 1, .jumps = 12}, {}});
  std::optional<absl::Duration> overdue;
  for (int i = 0; i < 300 && !overdue.has_value(); ++i) {
    for (WorkerVital& vital : vitals_) vital.cpu += absl::Milliseconds(100);
    for (const HangReport& report : Advance(absl::Milliseconds(100))) {
      EXPECT_FALSE(report.workers[1].overdue) << "it may do something";
      if (report.workers[0].overdue) overdue = report.workers[0].silent;
    }
  }
  ASSERT_TRUE(overdue.has_value());
  EXPECT_LE(*overdue, absl::Seconds(6));
}

// On a busy machine, a worker that waits for a busy one may get there late, and counts as busy at
// first. It isn't reported as busy and overdue as well: the detector takes a new sample before.
TEST_F(HangDetectorTest, WhoWasBusyIsLookedAtAgainBeforeItIsTold) {
  Learn();
  Learn(3, absl::Milliseconds(700));  // the slowest of them decide how far apart samples are
  ASSERT_EQ(samples_, 0);
  std::optional<Activity> waiting;
  bool was_busy = false;
  for (int i = 0; i < 300 && !waiting.has_value(); ++i) {
    vitals_[1].cpu += absl::Milliseconds(100);
    if (samples_ == 1) vitals_[0].stack = "recv";
    for (const HangReport& report : Advance(absl::Milliseconds(100))) {
      EXPECT_EQ(report.workers[1].activity, Activity::kActive);
      was_busy |= report.workers[0].activity == Activity::kActive;
      if (report.workers[1].overdue) waiting = report.workers[0].activity;
    }
  }
  EXPECT_TRUE(was_busy);
  EXPECT_EQ(waiting, Activity::kStill);
}

TEST_F(HangDetectorTest, SaysWhatItMeans) {
  Learn();
  Advance(absl::Seconds(2));
  EXPECT_THAT(detector_.Describe(1, now_), HasSubstr("no progress in train, step 1100, for 2."));
}

class SwitchedOff : public HangDetectorTest {
 protected:
  SwitchedOff() : HangDetectorTest(HangSettings{.watch_marks = false}) {}
};

TEST_F(SwitchedOff, TwinNothingIsWatched) {
  Learn();
  vitals_[1].state = 'T';
  EXPECT_TRUE(Advance(absl::Hours(1)).empty());
  EXPECT_EQ(looks_, 0);
}

class Unmarked : public HangDetectorTest {
 protected:
  Unmarked() : HangDetectorTest(HangSettings{.hang_timeout = absl::Seconds(20)}) {}

  void Start() {
    detector_.OnStarted(now_, 0);
    detector_.OnStarted(now_, 1);
  }
};

TEST_F(Unmarked, DoingNothingForTheTimeoutIsSuspect) {
  Start();
  for (int i = 0; i < 100; ++i) {
    vitals_[0].bytes += 10;
    vitals_[1].cpu += absl::Milliseconds(500);
    EXPECT_TRUE(Advance(absl::Seconds(2)).empty());
  }
  EXPECT_TRUE(Advance(absl::Seconds(15)).empty());
  const std::vector<HangReport> reports = Advance(absl::Seconds(20));
  ASSERT_FALSE(reports.empty());
  EXPECT_TRUE(reports[0].workers[0].suspect);
  EXPECT_EQ(reports[0].workers[0].activity, Activity::kStill);
  EXPECT_FALSE(reports[0].workers[0].overdue);
  EXPECT_THAT(detector_.Describe(0, now_), HasSubstr("--hang_timeout"));
}

// A template may import for minutes before it has anybody to fork.
TEST_F(Unmarked, WhoHasNotStartedIsNotSilent) {
  detector_.OnOpened(now_);
  EXPECT_TRUE(Advance(absl::Minutes(5)).empty());
  EXPECT_EQ(samples_, 0);
  Start();
  EXPECT_TRUE(Advance(absl::Seconds(19)).empty());
  EXPECT_FALSE(detector_.any_suspect());
  Start();  // again: nothing
  EXPECT_FALSE(Advance(absl::Seconds(20)).empty())
      << "negative control: from its start on it is watched";
}

TEST_F(Unmarked, WhoMarksIsJudgedByItsMarks) {
  Start();
  Learn(4);
  EXPECT_TRUE(Advance(absl::Seconds(300)).empty()) << "the first-step timeout holds";
}

TEST_F(HangDetectorTest, AStepIsOverWhereAnotherPhaseBegins) {
  detector_.OnOpened(now_);
  for (uint64_t mark = 2; mark <= 40; ++mark) {
    const auto phase = mark % 2 == 0 ? ProgressPhase::kTrain : ProgressPhase::kCheckpoint;
    Mark(0, phase, mark / 2);
    Advance(absl::Milliseconds(300));
  }
  EXPECT_NEAR(absl::ToDoubleMilliseconds(detector_.step_time()), 300, 45);  // an eighth: the looks
}

}  // namespace
}  // namespace ddprun::launcher
