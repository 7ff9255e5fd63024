// Whole histories of programs, from seeds: which workers are judged to hang, and when.
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

// What a worker does in a step, as /proc shows it.
enum class Kind { kBusy, kSleeps };

// How a history goes on when the program's steps are learned.
enum class Fate {
  kSlower,      // ten times as slow, for a hundred steps
  kPauses,      // a garbage collection of 3 s every hundred steps
  kCheckpoint,  // saves for 5 minutes, marked as such
  kStopped,     // SIGSTOP of rank 1
  kBlocked,     // rank 1 waits for ever in a read
  kSpins,       // rank 1 computes for ever
};

// Two ranks that meet in a collective at the end of each step, on one node.
class History {
 public:
  History(uint64_t seed, Kind kind, Fate fate)
      : rng_(seed),
        kind_(kind),
        fate_(fate),
        step_time_(absl::Milliseconds(std::exp(std::log(5.0) + Random() * std::log(400.0)))) {}

  absl::Duration step_time() const { return step_time_; }

  // The first verdict, and after how long; nothing when the history ends without one.
  struct Found {
    std::vector<uint32_t> guilty;
    absl::Duration after;  // the last mark of rank 1
    PhaseLimits limits;
  };
  std::optional<Found> Run() {
    detector_.OnOpened(now_);
    Mark(ProgressPhase::kStart);
    Advance(absl::Seconds(2));
    for (int i = 0; i < 1200 && !found_; ++i) Step(Jitter());
    if (found_) return found_;
    for (int i = 0; i < 100 && !found_; ++i) Live(i);
    return found_;
  }

 private:
  double Random() { return static_cast<double>(rng_.Below(1'000'000)) / 1e6; }
  // Mostly within 20 %, now and then double.
  double Jitter() { return rng_.Chance(1) ? 1 + Random() : 0.9 + 0.2 * Random(); }

  void Mark(ProgressPhase phase) {
    const uint64_t word = PackProgress(phase, step_);
    words_ = {word, word};
    marked_ = now_;
  }

  void Live(int i) {
    switch (fate_) {
      case Fate::kSlower:
        return Step(10 * Jitter());
      case Fate::kPauses:
        Step(Jitter());
        return i % 50 == 0 ? Busy(absl::Seconds(3)) : void();
      case Fate::kCheckpoint:
        Step(Jitter());
        if (i % 50 != 0) return;
        Mark(ProgressPhase::kCheckpoint);
        return Advance(absl::Minutes(5));
      case Fate::kStopped:
        vitals_[1].state = 'T';
        break;
      case Fate::kBlocked:
        vitals_[1].stack = vitals_[1].where = "pipe_read";
        break;
      case Fate::kSpins:
        vitals_[1].state = 'R';
        spins_ = true;
        break;
    }
    Advance(std::max(step_time_, absl::Milliseconds(200)));
  }

  void Step(double factor) {
    ++step_;
    Mark(ProgressPhase::kTrain);
    const absl::Duration time = step_time_ * factor;
    kind_ == Kind::kBusy ? Busy(time) : Advance(time);
  }

  void Busy(absl::Duration time) {
    computes_ = true;
    Advance(time);
    computes_ = false;
  }

  void Advance(absl::Duration by) {
    const Instant end = now_ + by;
    while (!found_) {
      const Instant next = std::min(detector_.NextLook(), detector_.NextSample());
      if (next > end) break;
      Pass(std::max(now_, next));
      if (detector_.NextLook() <= now_) detector_.OnWords(now_, words_);
      if (detector_.NextSample() <= now_) detector_.OnVitals(now_, vitals_);
      if (const auto report = detector_.TakeReport()) Judge(*report);
    }
    if (!found_) Pass(end);
  }

  void Pass(Instant at) {
    for (uint32_t i = 0; i < 2; ++i) {
      if (computes_ || (spins_ && i == 1)) vitals_[i].cpu += at - now_;
    }
    now_ = at;
  }

  void Judge(const rendezvous::HangReport& report) {
    std::vector<rendezvous::RankProgress> ranks;
    for (const auto& worker : report.workers) ranks.push_back({worker.local_rank, worker});
    const auto verdict = rendezvous::JudgeHang(ranks, true);
    if (!verdict) return;
    found_ = Found{verdict->guilty, now_ - marked_, detector_.limits(1)};
  }

  Rng rng_;
  const Kind kind_;
  const Fate fate_;
  const absl::Duration step_time_;
  HangDetector detector_{HangSettings{}, 2, Instant()};
  Instant now_;
  Instant marked_;
  uint64_t step_ = 0;
  bool computes_ = false;
  bool spins_ = false;
  std::vector<uint64_t> words_ = {0, 0};
  std::vector<WorkerVital> vitals_ = {{.alive = true, .stack = "futex", .where = "futex"},
                                      {.alive = true, .stack = "futex", .where = "futex"}};
  std::optional<Found> found_;
};

// A history is long, and sanitizers make it ten times slower; what they look for is in each.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kSeeds = 4;
constexpr uint64_t kManySeeds = 4;
#else
constexpr uint64_t kSeeds = 30;
constexpr uint64_t kManySeeds = 100;
#endif

void ExpectNoVerdict(Fate fate, const std::string& what, uint64_t seeds = kSeeds) {
  for (const Kind kind : {Kind::kBusy, Kind::kSleeps}) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      History history(seed, kind, fate);
      const auto found = history.Run();
      EXPECT_FALSE(found.has_value())
          << what << ", seed " << seed << (kind == Kind::kBusy ? ", busy" : ", sleeping")
          << ", steps of " << absl::FormatDuration(history.step_time()) << ", judged after "
          << absl::FormatDuration(found->after);
    }
  }
}

TEST(HangHistoryTest, TenTimesSlowerIsNoHang) {
  ExpectNoVerdict(Fate::kSlower, "slower", kManySeeds);
}
TEST(HangHistoryTest, AGarbageCollectionIsNoHang) { ExpectNoVerdict(Fate::kPauses, "pauses"); }
TEST(HangHistoryTest, ALongCheckpointIsNoHang) { ExpectNoVerdict(Fate::kCheckpoint, "saves"); }

TEST(HangHistoryTest, AStoppedRankIsNamedWithinItsBound) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto found = History(seed, Kind::kBusy, Fate::kStopped).Run();
    ASSERT_TRUE(found.has_value()) << seed;
    EXPECT_EQ(found->guilty, std::vector<uint32_t>{1}) << seed;
    // Two samples of 100 ms, and as much as a look is late: an eighth of a step.
    EXPECT_LE(found->after, found->limits.suspect * 1.05 + absl::Milliseconds(220)) << seed;
  }
}

TEST(HangHistoryTest, ABlockedRankIsNamedAfterTwoSamples) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto found = History(seed, Kind::kBusy, Fate::kBlocked).Run();
    ASSERT_TRUE(found.has_value()) << seed;
    EXPECT_LE(found->after, found->limits.suspect + 2 * found->limits.sample + absl::Seconds(1));
  }
}

TEST(HangHistoryTest, ASpinningRankIsNamedWhenItIsOverdue) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto found = History(seed, Kind::kSleeps, Fate::kSpins).Run();
    ASSERT_TRUE(found.has_value()) << seed;
    EXPECT_EQ(found->guilty, std::vector<uint32_t>{1}) << seed;
    EXPECT_GE(found->after, found->limits.overdue) << seed;
  }
}

}  // namespace
}  // namespace ddprun::launcher
