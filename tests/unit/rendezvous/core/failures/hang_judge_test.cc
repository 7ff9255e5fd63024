#include "rendezvous/core/failures/hang_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ddprun::rendezvous::hang_judge_test {
namespace {

using ::testing::HasSubstr;
using Phase = ProgressPhase;

RankProgress Rank(uint32_t rank, Phase phase, uint64_t step, bool suspect, Activity activity,
                  const std::string& where = "futex", bool overdue = false) {
  return {rank,
          {.local_rank = rank,
           .phase = phase,
           .step = step,
           .silent = absl::Seconds(5),
           .suspect = suspect,
           .overdue = overdue,
           .activity = activity,
           .where = where}};
}

RankProgress Waits(uint32_t rank, uint64_t step = 7) {
  return Rank(rank, Phase::kTrain, step, true, Activity::kStill);
}

using Ranks = std::vector<RankProgress>;

struct Row {
  std::string what;
  Ranks ranks;
  std::vector<uint32_t> guilty;  // empty = no verdict
  std::string evidence;
  bool complete = true;
};

const Activity kBusy = Activity::kActive;
const Activity kStill = Activity::kStill;
const Activity kStopped = Activity::kStopped;

// By what the others are at, and what is known.
std::vector<Row> BasicRows() {
  return {
      {"nobody is suspect",
       {Rank(0, Phase::kTrain, 7, false, kStill), Rank(1, Phase::kTrain, 7, false, kStopped)},
       {},
       ""},
      {"one is stopped",
       {Waits(0), Rank(1, Phase::kTrain, 7, true, kStopped), Waits(2)},
       {1},
       "stopped by a signal; others are at step 7"},
      {"stopped needs no other evidence",
       {Rank(1, Phase::kTrain, 7, true, kStopped)},
       {1},
       "stopped",
       false},
      {"the stopped one never marked",
       {Waits(0), Rank(1, Phase::kNone, 0, false, kStopped)},
       {1},
       "stopped"},
      {"two are stopped",
       {Rank(0, Phase::kTrain, 7, true, kStopped), Rank(1, Phase::kTrain, 8, true, kStopped)},
       {0, 1},
       "2 workers can't be told apart"},
      {"not everybody has answered", {Waits(0), Waits(1, 6)}, {}, "", false},
      {"one is behind",
       {Waits(0, 8), Waits(1, 7), Waits(2, 9)},
       {1},
       "behind the others, and neither computes nor moves data; others are at steps 8 to 9"},
      {"who is behind is slow, not hung",
       {Waits(0, 8), Rank(1, Phase::kTrain, 7, true, kBusy)},
       {},
       ""},
      {"until it is overdue",
       {Waits(0, 8), Rank(1, Phase::kTrain, 7, true, kBusy, "", true)},
       {1},
       "far beyond"},
      {"what nobody has looked at may be busy",
       {Waits(0), Rank(1, Phase::kTrain, 7, true, Activity::kUnknown)},
       {},
       ""},
      {"all wait for one that computes",
       {Rank(0, Phase::kTrain, 7, true, kStill, "futex", true),
        Rank(1, Phase::kTrain, 7, true, kBusy, "", true)},
       {1},
       "far beyond"},
      {"the others save a checkpoint, within its limits",
       {Rank(0, Phase::kCheckpoint, 7, false, kStill, "io"), Waits(1), Waits(2, 8)},
       {},
       ""},
      {"a hung checkpoint",
       {Rank(0, Phase::kCheckpoint, 7, true, kStill, "io"), Waits(1), Waits(2)},
       {0},
       "neither computes"},
      {"a stopped rank beside a checkpoint",
       {Rank(0, Phase::kCheckpoint, 7, false, kStill), Rank(1, Phase::kTrain, 9, true, kStopped)},
       {1},
       "stopped"},
  };
}

// By where they wait, and by those that mark nothing or nothing any more.
std::vector<Row> FinerRows() {
  return {
      {"the odd one out",
       {Waits(0), Waits(1), Rank(2, Phase::kTrain, 7, true, kStill, "pipe_read"), Waits(3)},
       {2},
       "neither computes"},
      {"no majority: a tie",
       {Waits(0), Rank(1, Phase::kTrain, 7, true, kStill, "pipe_read")},
       {0, 1},
       "2 workers can't be told apart"},
      {"all the same: a tie", {Waits(0), Waits(1), Waits(2)}, {0, 1, 2}, "3 workers"},
      {"where they wait can't be read",
       {Rank(0, Phase::kTrain, 7, true, kStill, ""), Rank(1, Phase::kTrain, 7, true, kStill, "")},
       {0, 1},
       "2 workers"},
      {"still in its start", {Waits(0, 8), Rank(1, Phase::kStart, 0, false, kStill)}, {}, ""},
      {"hung in its start", {Waits(0, 8), Rank(1, Phase::kStart, 0, true, kStill)}, {1}, "behind"},
      {"only rank 0 marks, and another computes",
       {Waits(0), Rank(1, Phase::kNone, 0, false, kBusy)},
       {},
       ""},
      {"only rank 0 marks, and another waits elsewhere",
       {Waits(0), Rank(1, Phase::kNone, 0, false, kStill),
        Rank(2, Phase::kNone, 0, false, kStill, "pipe_read")},
       {2},
       "neither"},
      {"who is done or idle is left out",
       {Waits(0), Rank(1, Phase::kDone, 3, false, kStill),
        Rank(2, Phase::kIdle, 2, false, kStopped)},
       {0},
       "neither"},
      {"alone", {Waits(0)}, {0}, "neither computes nor moves data"},
      {"alone and unmarked, by --hang_timeout",
       {Rank(0, Phase::kNone, 0, true, kStill)},
       {0},
       "neither"},
  };
}

RankProgress Counted(uint32_t rank, uint64_t collectives, Activity activity = kStill,
                     bool overdue = false, bool suspect = true) {
  RankProgress progress = Rank(rank, Phase::kCounted, 7, suspect, activity, "futex", overdue);
  progress.worker.collectives = collectives;
  return progress;
}

// Of programs that say nothing.
std::vector<Row> CountedRows() {
  return {
      {"who has not come to the collective is named, still as it is",
       {Counted(0, 27), Counted(1, 26), Counted(2, 27)},
       {1},
       "has begun 25 collectives, and the others 26; they wait for it; others are at step 7"},
      {"two of them", {Counted(0, 26), Counted(1, 26), Counted(2, 27)}, {0, 1}, "2 workers"},
      {"that others wait actively, as NCCL's do, changes nothing",
       {Counted(0, 27, kBusy), Counted(1, 26), Counted(2, 27, kBusy)},
       {1},
       "they wait for it"},
      {"it evaluates or saves", {Counted(0, 27), Counted(1, 26, kBusy)}, {}, ""},
      {"it runs in a circle", {Counted(0, 27), Counted(1, 26, kBusy, true)}, {1}, "they wait"},
      {"one of two may yet work", {Counted(0, 27), Counted(1, 26), Counted(2, 26, kBusy)}, {}, ""},
      {"all wait in the same collective, or outside of all",
       {Counted(0, 27), Counted(1, 27)},
       {},
       ""},
      {"of one nothing is known", {Counted(0, 27), Counted(1, 26), Counted(2, 0)}, {}, ""},
      {"one has taken no step", {Counted(0, 27), Rank(1, Phase::kNone, 0, false, kStill)}, {}, ""},
      {"one marks by itself: the other counts as unmarked",
       {Counted(0, 27), Waits(1)},
       {0, 1},
       "2 workers"},
      {"its limit is longer", {Counted(0, 27), Counted(1, 26, kStill, false, false)}, {}, ""},
      {"not all have answered", {Counted(0, 27), Counted(1, 26)}, {}, "", false},
      {"a stop needs no counts",
       {Counted(0, 0), Counted(1, 0, kStopped)},
       {1},
       "stopped by a signal"},
  };
}

TEST(JudgeHangTest, Table) {
  std::vector<Row> rows = BasicRows();
  for (Row& row : FinerRows()) rows.push_back(std::move(row));
  for (Row& row : CountedRows()) rows.push_back(std::move(row));
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    const std::optional<HangVerdict> verdict = JudgeHang(row.ranks, row.complete);
    ASSERT_EQ(verdict.has_value(), !row.guilty.empty());
    if (!verdict) continue;
    EXPECT_EQ(verdict->guilty, row.guilty);
    EXPECT_THAT(verdict->evidence, HasSubstr(row.evidence));
  }
}

}  // namespace
}  // namespace ddprun::rendezvous::hang_judge_test
