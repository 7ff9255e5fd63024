#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/rng.h"
#include "launcher/core/hang_detector.h"
#include "launcher/core/time_book.h"
#include "rendezvous/wire/convert.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_bytes.h"
#include "tests/support/inputs.h"

namespace ddprun::launcher {

struct ProgressFuzzResult {
  std::string problem;    // "" = none
  uint64_t reports = 0;   // findings for the service
  uint64_t suspects = 0;  // in them
};

// Plays the bytes as what workers store in their pages of progress, which may be anything, and as
// what /proc shows of them: into the detector of hangs and the book of time. What comes of it is
// taken by the service, no look is wanted at once again, and no time is lost or booked twice.
ProgressFuzzResult FuzzProgress(const uint8_t* data, size_t size);

namespace {

constexpr absl::Duration kStart = absl::Hours(1);  // of the clock, when the generation begins

class Player {
 public:
  Player(const uint8_t* data, size_t size)
      : bytes_(data, size),
        workers_(1 + static_cast<uint32_t>(bytes_.Below(4))),
        settings_(Settings(bytes_.Next())),
        detector_(settings_, workers_, now_),
        book_(bytes_.Next(), now_),
        pages_{.words = std::vector<uint64_t>(workers_),
               .marked = std::vector<Instant>(workers_),
               .data_wait = {}},
        ended_(workers_),
        started_(workers_),
        vitals_(workers_, WorkerVital{.alive = true}) {}

  ProgressFuzzResult Play() {
    while (!bytes_.empty() && result_.problem.empty()) {
      PlayOne();
      Check();
    }
    return result_;
  }

 private:
  static HangSettings Settings(uint8_t byte) {
    HangSettings settings;
    settings.watch_marks = byte % 8 != 0;
    settings.first_step_timeout = absl::Seconds(1 + byte);
    if (byte % 4 == 0) settings.hang_timeout = absl::Seconds(1 + byte / 4);
    return settings;
  }

  void PlayOne() {
    switch (bytes_.Below(10)) {
      case 0:
        return detector_.OnOpened(now_);
      case 1:
      case 2:
        return Mark();
      case 3:
        return Do();
      case 4:
      case 5:
        return Look();
      case 6:
        now_ = now_ + absl::Milliseconds(bytes_.Next() * (bytes_.Chance(128) ? 1 : 100));
        return;
      case 7:
        return Sample();
      case 8:
        return detector_.OnAsked(now_, absl::Milliseconds(bytes_.Next() * 256));
      default:
        return PlayRare();
    }
  }

  void PlayRare() {
    switch (bytes_.Below(8)) {
      case 0: {
        const size_t rank = bytes_.Below(workers_ + 1);
        if (rank < workers_) ended_[rank] = true;
        return detector_.OnEnded(static_cast<uint32_t>(rank));
      }
      case 1:
        closed_ = std::min(closed_, now_);
        return book_.Close(now_);
      case 2:
        pages_.data_wait = absl::Nanoseconds(static_cast<int64_t>(bytes_.Number() >> 1U));
        return;
      case 3: {
        const size_t rank = bytes_.Below(workers_ + 1);
        if (rank < workers_) started_[rank] = true;
        return detector_.OnStarted(now_, static_cast<uint32_t>(rank));
      }
      default:  // as HangMonitor waits
        const Instant next = std::min(detector_.NextLook(), detector_.NextSample());
        if (next.is_infinite()) return;
        now_ = std::max(now_, next);
        if (now_ >= detector_.NextLook()) Look();
        if (now_ >= detector_.NextSample()) Sample();
        return;
    }
  }

  // A worker stores what it likes: mostly its next step.
  void Mark() {
    const size_t rank = bytes_.Below(workers_);
    uint64_t& word = pages_.words[rank];
    const uint8_t how = bytes_.Next();
    if (how < 128) {
      word = PackProgress(ProgressPhase::kTrain, ProgressStepOf(word) + 1);
    } else if (how < 230) {
      word = PackProgress(static_cast<ProgressPhase>(how % 7), ProgressStepOf(word) + how % 2);
    } else {
      word = bytes_.Number();
    }
    if (bytes_.Chance(200)) {
      pages_.marked[rank] = now_ - absl::Microseconds(bytes_.Next());
    } else if (bytes_.Chance(100)) {
      pages_.marked[rank] = Instant::FromNanoseconds(static_cast<int64_t>(bytes_.Number()));
    }
  }

  // What /proc will show of one.
  void Do() {
    WorkerVital& vital = vitals_[bytes_.Below(workers_)];
    const uint8_t what = bytes_.Next();
    vital.state = "RSDTtZ?"[what % 7];
    vital.alive = what < 250;
    vital.cpu += absl::Milliseconds(bytes_.Next() % 32);
    vital.bytes += bytes_.Next() % 4;
    vital.turns += bytes_.Next();
    if (what > 200) vital.turns = bytes_.Number();
    vital.stack.assign(1, static_cast<char>('a' + what % 3));
    vital.where = bytes_.Text(bytes_.Below(16));
  }

  void Look() {
    book_.OnLook(now_, pages_);
    detector_.OnWords(now_, pages_.words);
    if (detector_.NextLook() <= now_) Fail("a look is wanted at once again");
  }

  void Sample() {
    detector_.OnVitals(now_, vitals_);
    if (detector_.NextSample() <= now_) Fail("a sample is wanted at once again");
  }

  void Check() {
    CheckSuspects();
    CheckBook();
    rendezvous::AgentMessage message{.run_id = "job",
                                     .term = rendezvous::Term(1),
                                     .node_id = rendezvous::NodeId("a"),
                                     .incarnation = rendezvous::Incarnation(1),
                                     .stream = rendezvous::StreamNumber(1),
                                     .generation = rendezvous::Generation(1),
                                     .sequence = 0,
                                     .body = rendezvous::Renewal{.nonce = 1,
                                                                 .progress = pages_.words,
                                                                 .step_time = detector_.step_time(),
                                                                 .time = book_.Read(now_)}};
    ExpectTaken(message);
    std::optional<rendezvous::HangReport> report = detector_.TakeReport();
    if (!report.has_value()) return;
    ++result_.reports;
    for (const rendezvous::WorkerProgress& worker : report->workers) {
      if (ended_.at(worker.local_rank)) Fail("a worker that has ended is reported");
      result_.suspects += worker.suspect ? 1 : 0;
    }
    message.sequence = 1;
    message.body = *std::move(report);
    ExpectTaken(message);
  }

  void CheckSuspects() {
    for (uint32_t rank = 0; rank < workers_; ++rank) {
      (void)detector_.StillStands(rank);
      if (detector_.Describe(rank, now_).empty()) Fail("nothing is said of a worker");
      if (!detector_.suspect(rank)) continue;
      if (ended_[rank]) Fail("a worker that has ended is suspect");
      const bool is_watched =
          settings_.watch_marks || settings_.hang_timeout > absl::ZeroDuration();
      if (!is_watched) Fail("a worker is suspect that nobody watches");
      if (!started_[rank] && !detector_.marked(rank))
        Fail("a worker that hasn't started is suspect");
    }
  }

  // Checks that all the time is booked, and no more than that.
  void CheckBook() {
    const rendezvous::NodeTime time = book_.Read(now_);
    const absl::Duration all = std::min(now_, closed_) - (Instant() + kStart);
    if (time.spent.Total() + time.last != all) {
      Fail(absl::StrCat("of ", absl::FormatDuration(all), " are booked ",
                        absl::FormatDuration(time.spent.Total() + time.last)));
    }
    for (const absl::Duration part : time.spent.by) {
      if (part < absl::ZeroDuration()) Fail("a time is negative");
    }
  }

  void ExpectTaken(const rendezvous::AgentMessage& message) {
    const auto taken = rendezvous::FromProto(rendezvous::ToProto(message));
    if (!taken.ok()) Fail(absl::StrCat("the service refuses it: ", taken.status().message()));
  }

  void Fail(const std::string& what) {
    if (result_.problem.empty()) result_.problem = what;
  }

  InputBytes bytes_;
  ProgressFuzzResult result_;
  Instant now_ = Instant() + kStart;
  const uint32_t workers_;
  const HangSettings settings_;
  HangDetector detector_;
  TimeBook book_;
  TimeBook::Look pages_;
  Instant closed_ = Instant::Infinite();
  std::vector<bool> ended_;
  std::vector<bool> started_;
  std::vector<WorkerVital> vitals_;
};

}  // namespace

ProgressFuzzResult FuzzProgress(const uint8_t* data, size_t size) {
  return Player(data, size).Play();
}

}  // namespace ddprun::launcher

namespace ddprun::launcher {
namespace {

TEST(ProgressSmoke, WorkersStoreWhatTheyLike) {
  uint64_t reports = 0;
  uint64_t suspects = 0;
  const auto inputs = Inputs<uint64_t>(3000);
  for (uint64_t seed = 0; seed < inputs; ++seed) {
    Rng rng(seed);
    std::vector<uint8_t> bytes(100 + rng.Below(2000));
    const uint64_t bound = rng.Chance(50) ? 200 : 256;
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Below(bound));
    const ProgressFuzzResult result = FuzzProgress(bytes.data(), bytes.size());
    ASSERT_EQ(result.problem, "") << "seed " << seed;
    reports += result.reports;
    suspects += result.suspects;
  }
  // The events got somewhere.
  EXPECT_GT(reports, inputs / 3);
  EXPECT_GT(suspects, inputs / 10);
}

TEST(ProgressSmoke, TheEmptyInput) { EXPECT_EQ(FuzzProgress(nullptr, 0).problem, ""); }

}  // namespace
}  // namespace ddprun::launcher

DDPRUN_FUZZER(bytes) {
  const ddprun::launcher::ProgressFuzzResult result =
      ddprun::launcher::FuzzProgress(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  DDPRUN_CHECK(result.problem.empty(), result.problem);
}
