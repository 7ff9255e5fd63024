// Whole histories of programs that mark nothing, from seeds: detector and judge together, on steps
// that are counted for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "launcher/core/hang_detector.h"
#include "rendezvous/core/failures/hang_judge.h"

namespace ddprun::launcher {
namespace {

// What a rank does that others wait for, as /proc and its own witness show it.
enum class Deed {
  kEvaluates,  // processor time, in many functions
  kSaves,      // bytes
  kSleeps,     // nothing
  kSpins,      // processor time, in the jump of one loop
  kStopped,
  kInLoader,  // waits with a time-out of 5 s for a child that hangs
  kUploads,   // nothing, in a close(2)
  kNative,    // processor time in one call: nothing of it is seen
};

// Two ranks that meet in a collective at the end of each step, on one node.
class CountedHistory {
 public:
  explicit CountedHistory(uint64_t seed, int hangs_before = 0)
      : rng_(seed),
        step_time_(absl::Milliseconds(std::exp(std::log(5.0) + Random() * std::log(400.0)))),
        detector_(Settings(hangs_before), 2, Instant()) {
    detector_.OnOpened(now_);
    Advance(absl::Seconds(30));  // imports, and the first step compiles
    Step();
    Advance(absl::Seconds(20));
  }

  absl::Duration step_time() const { return step_time_; }
  uint64_t Below(uint64_t bound) { return rng_.Below(bound); }
  Instant now() const { return now_; }

  void Steps(int count) {
    for (int i = 0; i < count && !found_; ++i) Step();
  }
  void StepsFor(absl::Duration time) {
    for (const Instant end = now_ + time; now_ < end && !found_;) Step();
  }

  // `rank` does something before it comes to the next collective, for which the other waits; 2:
  // both.
  void Does(uint32_t rank, Deed deed, absl::Duration time) {
    deed_ = deed;
    for (uint32_t i = 0; i < 2; ++i) {
      busy_[i] = rank == i || rank == 2;
      if (!busy_[i]) ++collectives_[i];
    }
    Advance(time);
    for (uint32_t i = 0; i < 2; ++i) {
      if (!busy_[i]) --collectives_[i];
      busy_[i] = false;
      vitals_[i].state = 'S';
    }
  }

  struct Found {
    std::vector<uint32_t> guilty;
    absl::Duration after;  // the last step
  };
  const std::optional<Found>& found() const { return found_; }

 private:
  static HangSettings Settings(int hangs_before) {
    HangSettings settings;
    for (int i = 0; i < hangs_before; ++i) settings.few_steps_slack *= 4;
    return settings;
  }

  double Random() { return static_cast<double>(rng_.Below(1'000'000)) / 1e6; }

  // Mostly within 20 %, now and then double.
  void Step() {
    Advance(step_time_ * (rng_.Chance(1) ? 1 + Random() : 0.9 + 0.2 * Random()));
    ++step_;
    ++collectives_[0];
    ++collectives_[1];
    words_ = {PackProgress(ProgressPhase::kCounted, step_),
              PackProgress(ProgressPhase::kCounted, step_)};
    marked_ = now_;
  }

  void Advance(absl::Duration by) {
    const Instant end = now_ + by;
    while (!found_) {
      const Instant next = std::min(detector_.NextLook(), detector_.NextSample());
      if (next > end) break;
      Pass(std::max(now_, next));
      if (detector_.NextLook() <= now_) detector_.OnWords(now_, words_);
      if (detector_.NextSample() <= now_) {
        detector_.OnWitnesses({See(0), See(1)});
        detector_.OnVitals(now_, vitals_);
      }
      if (const auto report = detector_.TakeReport()) Judge(*report);
    }
    if (!found_) Pass(end);
  }

  void Pass(Instant at) {
    const absl::Duration by = at - now_;
    for (uint32_t i = 0; i < 2; ++i) {
      if (!busy_[i]) continue;
      const bool computes =
          deed_ == Deed::kEvaluates || deed_ == Deed::kSpins || deed_ == Deed::kNative;
      if (computes) vitals_[i].cpu += by;
      if (deed_ == Deed::kSaves) vitals_[i].bytes += absl::ToInt64Milliseconds(by);
      vitals_[i].stack = deed_ == Deed::kUploads ? "request_wait_answer < fuse_flush" : "futex";
      if (deed_ == Deed::kStopped) vitals_[i].state = 'T';
      if (deed_ == Deed::kInLoader && (at - marked_) / absl::Seconds(5) > turns_) {
        ++turns_;
        ++vitals_[i].turns;
      }
    }
    now_ = at;
  }

  Witness See(uint32_t rank) const {
    const auto looks = static_cast<uint64_t>((now_ - marked_) / absl::Milliseconds(250));
    Witness witness{.collectives = collectives_[rank] + 1, .looks = looks, .places = 1};
    if (!busy_[rank]) return witness;
    if (deed_ == Deed::kSpins) witness.jumps = looks;
    if (deed_ == Deed::kEvaluates) witness.places = std::min<uint64_t>(looks, 9);
    if (deed_ == Deed::kStopped) witness.looks = 0;
    return witness;
  }

  void Judge(const rendezvous::HangReport& report) {
    std::vector<rendezvous::RankProgress> ranks;
    for (const auto& worker : report.workers) ranks.push_back({worker.local_rank, worker});
    const auto verdict = rendezvous::JudgeHang(ranks, true);
    if (verdict) found_ = Found{verdict->guilty, now_ - marked_};
  }

  Rng rng_;
  const absl::Duration step_time_;
  HangDetector detector_;
  Instant now_;
  Instant marked_;
  uint64_t step_ = 0;
  Deed deed_ = Deed::kEvaluates;
  int64_t turns_ = 0;
  std::vector<bool> busy_ = {false, false};
  std::vector<uint64_t> collectives_ = {10, 10};
  std::vector<uint64_t> words_ = {0, 0};
  std::vector<WorkerVital> vitals_ = {{.alive = true, .stack = "futex", .where = "futex"},
                                      {.alive = true, .stack = "futex", .where = "futex"}};
  std::optional<Found> found_;
};

std::string Story(uint64_t seed, const CountedHistory& history) {
  std::string text =
      absl::StrCat("seed ", seed, ", steps of ", absl::FormatDuration(history.step_time()));
  if (history.found()) {
    absl::StrAppend(&text, ", judged ", absl::FormatDuration(history.found()->after),
                    " after a step, at ", absl::FormatDuration(history.now() - Instant()));
  }
  return text;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kCountedSeeds = 4;
constexpr absl::Duration kHour = absl::Minutes(6);
#else
constexpr uint64_t kCountedSeeds = 12;
constexpr absl::Duration kHour = absl::Hours(1);
#endif

// An hour with evaluations and saves of ten steps' length, by all or by one.
TEST(CountedHistoryTest, AnHourWithoutAFalseAlarm) {
  for (uint64_t seed = 1; seed <= kCountedSeeds; ++seed) {
    CountedHistory history(seed);
    while (history.now() < Instant() + kHour && !history.found()) {
      history.Steps(static_cast<int>(history.Below(60)));
      const Deed deed = history.Below(2) == 0 ? Deed::kEvaluates : Deed::kSaves;
      history.Does(static_cast<uint32_t>(history.Below(3)), deed, 10 * history.step_time());
    }
    EXPECT_FALSE(history.found()) << Story(seed, history);
  }
}

// Even if the evaluation is much longer than any before: a rank that works is given time.
TEST(CountedHistoryTest, ALongEvaluationOfOneRankIsNoHang) {
  for (const Deed deed : {Deed::kEvaluates, Deed::kSaves, Deed::kUploads, Deed::kNative}) {
    for (uint64_t seed = 1; seed <= kCountedSeeds; ++seed) {
      CountedHistory history(seed);
      history.Steps(50);
      history.Does(static_cast<uint32_t>(seed % 2), deed, absl::Minutes(9));
      EXPECT_FALSE(history.found()) << Story(seed, history);
    }
  }
}

TEST(CountedHistoryTest, WhereAllStandStillNobodyIsNamed) {
  CountedHistory history(1);
  history.Steps(50);
  history.Does(2, Deed::kSleeps, absl::Hours(2));
  EXPECT_FALSE(history.found()) << Story(1, history);
}

TEST(CountedHistoryTest, AHungRankIsNamedWithinTenStepsAndFiveSeconds) {
  for (const Deed deed : {Deed::kSleeps, Deed::kSpins, Deed::kStopped, Deed::kInLoader}) {
    for (uint64_t seed = 1; seed <= kCountedSeeds; ++seed) {
      CountedHistory history(seed);
      // Before 5 steps were seen nothing is known, and looks may be a second apart until then.
      history.StepsFor(absl::Seconds(3));
      history.Steps(static_cast<int>(10 + history.Below(300)));
      const auto rank = static_cast<uint32_t>(seed % 2);
      history.Does(rank, deed, absl::Minutes(9));
      ASSERT_TRUE(history.found()) << Story(seed, history);
      EXPECT_EQ(history.found()->guilty, std::vector<uint32_t>{rank});
      // With steps longer than a second the limit is twelve steps. A tenth more: the median is
      // known to 9 %.
      const absl::Duration step = history.step_time() * 1.2;
      EXPECT_LE(history.found()->after, std::max(10 * step + absl::Seconds(5), 13 * step))
          << Story(seed, history);
    }
  }
}

// What may have been none: the same again is given four times as long.
TEST(CountedHistoryTest, AHangThatComesAgainIsGivenMoreTime) {
  CountedHistory history(3, 2);
  history.Steps(100);
  history.Does(0, Deed::kSleeps, absl::Seconds(30));
  EXPECT_FALSE(history.found()) << Story(3, history);
  CountedHistory twin(3);
  twin.Steps(100);
  twin.Does(0, Deed::kSleeps, absl::Seconds(30));
  EXPECT_TRUE(twin.found()) << "the first time it is a hang";
}

}  // namespace
}  // namespace ddprun::launcher
