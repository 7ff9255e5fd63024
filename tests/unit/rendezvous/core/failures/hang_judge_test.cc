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
      {"a rank that is behind is slow, not hung",
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
      {"ranks that are done or idle are left out",
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

RankProgress Begun(RankProgress rank, uint64_t collectives, bool early = false) {
  rank.worker.collectives = collectives;
  rank.worker.early = early;
  return rank;
}

// By the collectives of programs that mark.
std::vector<Row> CollectiveRows() {
  return {
      {"of those at one step the one that the other waits for",
       {Begun(Waits(0), 27), Begun(Waits(1), 26)},
       {1},
       "hasn't come to collective 26, for which rank 0 has waited 5s; others are at step 7"},
      {"that the other waits actively changes nothing",
       {Begun(Rank(0, Phase::kTrain, 7, true, kBusy), 27), Begun(Waits(1), 26)},
       {1},
       "hasn't come to collective 26"},
      {"it may still work",
       {Begun(Waits(0), 27), Begun(Rank(1, Phase::kTrain, 7, true, kBusy), 26)},
       {},
       ""},
      {"it saves within its limits",
       {Begun(Waits(0), 27), Begun(Rank(1, Phase::kCheckpoint, 7, false, kStill), 26)},
       {},
       ""},
      {"a step counts more", {Begun(Waits(0, 8), 26), Begun(Waits(1), 27)}, {1}, "behind"},
      {"of one nothing is known: a tie", {Begun(Waits(0), 27), Waits(1)}, {0, 1}, "2 workers"},
      {"equal: a tie", {Begun(Waits(0), 27), Begun(Waits(1), 27)}, {0, 1}, "2 workers"},
      {"early, awaited",
       {Begun(Waits(0), 5, true), Begun(Waits(1), 4, true)},
       {1},
       "collective 4,"},
      {"early, a step behind, awaited",
       {Begun(Waits(0, 8), 5, true), Begun(Waits(1), 4, true)},
       {1},
       "hasn't come to collective 4, for which rank 0"},
      {"early, one of them is learned",
       {Begun(Waits(0), 5), Begun(Waits(1), 5, true)},
       {0, 1},
       "2 workers"},
      {"early, equal", {Begun(Waits(0), 5, true), Begun(Waits(1), 5, true)}, {}, ""},
      {"early, a step behind, equal",
       {Begun(Waits(0, 8), 5, true), Begun(Waits(1), 5, true)},
       {},
       ""},
      {"early, of one nothing is known", {Begun(Waits(0), 5, true), Waits(1)}, {0, 1}, "2 workers"},
      {"early, busy",
       {Begun(Waits(0), 5, true), Begun(Rank(1, Phase::kTrain, 7, true, kBusy), 4, true)},
       {},
       ""},
  };
}

RankProgress Counted(uint32_t rank, uint64_t collectives, Activity activity = kStill,
                     bool overdue = false, bool suspect = true) {
  RankProgress progress = Rank(rank, Phase::kCounted, 7, suspect, activity, "futex", overdue);
  progress.worker.collectives = collectives;
  return progress;
}

// Rows of programs that mark nothing: ddprun counts their steps and collectives.
std::vector<Row> CountedRows() {
  return {
      {"a rank that hasn't come to the collective is named; it stands still",
       {Counted(0, 27), Counted(1, 26), Counted(2, 27)},
       {1},
       "hasn't come to collective 26, for which 2 ranks have waited 5s; others are at step 7"},
      {"two of them", {Counted(0, 26), Counted(1, 26), Counted(2, 27)}, {0, 1}, "2 workers"},
      {"that others wait actively, as NCCL's do, changes nothing",
       {Counted(0, 27, kBusy), Counted(1, 26), Counted(2, 27, kBusy)},
       {1},
       "for which 2 ranks have waited"},
      {"it evaluates or saves", {Counted(0, 27), Counted(1, 26, kBusy)}, {}, ""},
      {"it runs in a circle",
       {Counted(0, 27), Counted(1, 26, kBusy, true)},
       {1},
       "for which rank 0 has"},
      {"one of two may still work",
       {Counted(0, 27), Counted(1, 26), Counted(2, 26, kBusy)},
       {},
       ""},
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

// As where DistributedDataParallel has a group of its own.
TEST(JudgeHangTest, ARankIsNamedByAnotherGroupThanTheDefaultOne) {
  Ranks ranks = {Counted(0, 3), Counted(1, 3), Counted(2, 3)};
  ranks[0].worker.groups = {{"0", 2, 3}, {"1", 40, 2}};
  ranks[1].worker.groups = {{"0", 2, 3}, {"1", 39, 2}};
  ranks[2].worker.groups = {{"0", 2, 3}};
  const std::optional<HangVerdict> verdict = JudgeHang(ranks, true);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->guilty, std::vector<uint32_t>{1});
  EXPECT_THAT(verdict->evidence,
              HasSubstr("hasn't come to collective 40 of group 1, for which rank 0 has"));
  ranks[1].worker.groups.pop_back();
  EXPECT_FALSE(JudgeHang(ranks, true).has_value()) << "negative control: a member isn't known";
}

TEST(JudgeHangTest, RanksThatWaitForOneThatHasLeftAreNamed) {
  Ranks ranks = {Counted(0, 31), Counted(1, 31), Rank(2, Phase::kDone, 0, false, kStill)};
  ranks[0].worker.groups = ranks[1].worker.groups = {{"0", 30, 3}};
  ranks[0].worker.inside_group = ranks[1].worker.inside_group = "0";
  ranks[2].worker.groups = {{"0", 29, 3}};
  EXPECT_FALSE(JudgeHang(ranks, true).has_value()) << "negative control: it may still come";
  ranks[2].worker.left = true;
  const std::optional<HangVerdict> verdict = JudgeHang(ranks, true);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_EQ(verdict->guilty, (std::vector<uint32_t>{0, 1}));
  EXPECT_FALSE(verdict->end);
  EXPECT_EQ(verdict->evidence,
            "waits in a collective after number 29 of group 0, the last that rank 2 had begun when "
            "it ended with status 0");
  ranks[1].worker.inside_group = "";
  EXPECT_EQ(JudgeHang(ranks, true)->guilty, std::vector<uint32_t>{0}) << "rank 1 has caught it";
  ranks[2].worker.groups = {{"0", 30, 3}};
  EXPECT_FALSE(JudgeHang(ranks, true).has_value()) << "it has done its part";
}

TEST(JudgeHangTest, OnlyAnExpiredSuspicionEnds) {
  Ranks ranks = {Waits(0, 8), Waits(1, 7), Waits(2, 7)};
  EXPECT_FALSE(JudgeHang(ranks, true)->end);
  ranks[1].worker.expired = true;
  EXPECT_FALSE(JudgeHang(ranks, true)->end) << "rank 2 may be the one that holds up the others";
  ranks[2].worker.expired = true;
  EXPECT_TRUE(JudgeHang(ranks, true)->end);
}

// Somebody has paused them. An explicit --hang_timeout ends them all the same.
TEST(JudgeHangTest, RanksThatAreAllStoppedHoldUpNobody) {
  Ranks ranks = {Rank(0, Phase::kTrain, 7, true, kStopped),
                 Rank(1, Phase::kTrain, 7, true, kStopped)};
  for (RankProgress& rank : ranks) rank.worker.expired = true;
  EXPECT_FALSE(JudgeHang(ranks, true)->end);
  for (RankProgress& rank : ranks) rank.worker.idle = true;
  EXPECT_TRUE(JudgeHang(ranks, true)->end);
  ranks = {Rank(0, Phase::kTrain, 7, true, kStopped), Waits(1)};
  ranks[0].worker.expired = true;
  EXPECT_TRUE(JudgeHang(ranks, true)->end) << "negative control: rank 1 waits";
  EXPECT_FALSE(JudgeHang(ranks, false)->end) << "not all have answered";
}

TEST(JudgeHangTest, AnExplicitTimeoutEndsRanksThatAllDoNothing) {
  Ranks ranks = {Counted(0, 27), Counted(1, 27)};
  EXPECT_FALSE(JudgeHang(ranks, true).has_value());
  for (RankProgress& rank : ranks) rank.worker.idle = true;
  const std::optional<HangVerdict> verdict = JudgeHang(ranks, true);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_TRUE(verdict->end);
  ranks[1].worker.idle = false;
  EXPECT_FALSE(JudgeHang(ranks, true).has_value()) << "negative control: one does something";
}

TEST(JudgeHangTest, Table) {
  std::vector<Row> rows = BasicRows();
  for (Row& row : FinerRows()) rows.push_back(std::move(row));
  for (Row& row : CollectiveRows()) rows.push_back(std::move(row));
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
