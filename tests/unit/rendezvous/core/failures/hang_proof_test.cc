#include "rendezvous/core/failures/hang_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rng.h"

namespace ddprun::rendezvous::hang_proof_test {
namespace {

using ::testing::HasSubstr;
using Ranks = std::vector<RankProgress>;

// A rank that belongs to `groups`, and stands in `call` of one of them ("" = elsewhere).
RankProgress Rank(uint32_t rank, std::vector<GroupProgress> groups, std::string call = "",
                  std::string group = "") {
  return {rank,
          {.local_rank = 0,
           .phase = ProgressPhase::kCounted,
           .suspect = true,
           .activity = Activity::kStill,
           .groups = std::move(groups),
           .inside_group = std::move(group),
           .inside_call = std::move(call)}};
}

struct Row {
  std::string what;
  Ranks ranks;
  std::vector<uint32_t> guilty;  // empty = no proof
  std::string evidence;
};

Ranks With(Ranks ranks, size_t at, void (*change)(WorkerProgress&)) {
  change(ranks[at].worker);
  return ranks;
}

const Ranks kKinds = {Rank(0, {{"0", 5, 3}}, "all_reduce", "0"),
                      Rank(1, {{"0", 5, 3}}, "broadcast", "0"),
                      Rank(2, {{"0", 5, 3}}, "all_reduce", "0")};
const Ranks kCircle = {Rank(0, {{"A", 5, 2}, {"B", 2, 2}}, "all_reduce", "A"),
                       Rank(1, {{"A", 4, 2}, {"B", 3, 2}}, "all_reduce", "B")};

// By locks and by the kinds of collectives.
std::vector<Row> KindRows() {
  return {
      {"all threads at locks",
       With({Rank(0, {}), Rank(1, {})}, 1, [](WorkerProgress& w) { w.deadlocked = true; }),
       {1},
       "deadlock"},
      {"nobody waits in a collective", {Rank(0, {{"0", 5, 2}}), Rank(1, {{"0", 5, 2}})}, {}, ""},
      {"one kind differs",
       kKinds,
       {1},
       "as collective 5 of group 0 ranks 0, 2 wait in all_reduce, rank 1 waits in broadcast"},
      {"two kinds, no majority",
       {kKinds[0], With(kKinds, 1, [](WorkerProgress& w) { w.inside_call = "barrier"; })[1],
        With(kKinds, 2, [](WorkerProgress& w) { w.inside_call = "reduce"; })[2]},
       {0, 1, 2},
       "crossed collectives"},
      {"two functions of one kind meet",
       {Rank(0, {{"0", 5, 2}}, "all_gather", "0"),
        Rank(1, {{"0", 5, 2}}, "all_gather_into_tensor", "0")},
       {},
       ""},
      {"a function that isn't known may meet any other",
       {Rank(0, {{"0", 5, 2}}, "all_reduce", "0"), Rank(1, {{"0", 5, 2}}, "all_to_all", "0")},
       {},
       ""},
      {"a third rank hasn't come, and may make them go on",
       With(kKinds, 2,
            [](WorkerProgress& w) {
              w.inside_call = "";
              w.groups[0].sequence = 4;
            }),
       {},
       ""},
      {"one of them moves data",
       With(kKinds, 1, [](WorkerProgress& w) { w.activity = Activity::kActive; }),
       {},
       ""},
  };
}

// By groups, and by ranks that have ended.
std::vector<Row> GroupRows() {
  return {
      {"a circle over two groups",
       kCircle,
       {0, 1},
       "rank 0 waits in all_reduce, collective 5 of group A; rank 1 waits in all_reduce, "
       "collective 3 of group B"},
      {"no circle: rank 1 computes",
       With(kCircle, 1, [](WorkerProgress& w) { w.activity = Activity::kActive; }),
       {},
       ""},
      {"no circle: rank 1 waits for what comes",
       {kCircle[0], Rank(1, {{"A", 4, 2}, {"B", 2, 2}}, "all_reduce", "B")},
       {},
       ""},
      {"a member of a group hasn't reported",
       {Rank(0, {{"A", 5, 3}, {"B", 2, 2}}, "all_reduce", "A"),
        Rank(1, {{"A", 4, 3}, {"B", 3, 2}}, "all_reduce", "B")},
       {},
       ""},
      {"the others wait for a circle, too",
       {kCircle[0], kCircle[1], Rank(2, {{"C", 1, 2}}, "barrier", "C"), Rank(3, {{"C", 0, 2}})},
       {0, 1},
       "each waits for another"},
      {"a rank that has ended",
       {Rank(0, {{"0", 5, 2}}, "all_reduce", "0"),
        With({Rank(1, {{"0", 4, 2}})}, 0, [](WorkerProgress& w) { w.left = true; })[0]},
       {0},
       "rank 1 has ended with status 0, and rank 0 waits in all_reduce, collective 5"},
      {"a rank that has ended after it began the collective",
       {Rank(0, {{"0", 5, 3}}, "gather", "0"),
        With({Rank(1, {{"0", 5, 3}})}, 0, [](WorkerProgress& w) { w.left = true; })[0],
        Rank(2, {{"0", 4, 3}})},
       {},
       ""},
  };
}

TEST(ProveHangTest, Table) {
  std::vector<Row> rows = KindRows();
  for (Row& row : GroupRows()) rows.push_back(std::move(row));
  for (const Row& row : rows) {
    SCOPED_TRACE(row.what);
    const std::optional<HangProof> proof = ProveHang(row.ranks, true);
    ASSERT_EQ(proof.has_value(), !row.guilty.empty());
    if (!proof) continue;
    EXPECT_EQ(proof->verdict.guilty, row.guilty);
    EXPECT_TRUE(proof->verdict.end);
    EXPECT_THAT(proof->verdict.evidence, HasSubstr(row.evidence));
  }
}

TEST(ProveHangTest, OnlyADeadlockNeedsNoOtherNode) {
  EXPECT_FALSE(ProveHang(kKinds, false).has_value());
  EXPECT_FALSE(ProveHang(kCircle, false).has_value());
  const Ranks locked = With({Rank(0, {})}, 0, [](WorkerProgress& w) { w.deadlocked = true; });
  EXPECT_TRUE(ProveHang(locked, false).has_value());
}

TEST(ProveHangTest, TheFingerprintTellsWhereRanksStand) {
  const std::string first = ProveHang(kCircle, true)->fingerprint;
  EXPECT_EQ(ProveHang(kCircle, true)->fingerprint, first);
  Ranks later = kCircle;
  for (RankProgress& rank : later) {
    for (GroupProgress& group : rank.worker.groups) ++group.sequence;
  }
  EXPECT_NE(ProveHang(later, true)->fingerprint, first);
}

// A job whose ranks all call the same collectives in the same order, each at its own pace, is never
// proven to hang, whatever moment the reports are of.
class Healthy {
 public:
  explicit Healthy(uint64_t seed) : rng_(seed) {
    const auto count = static_cast<uint32_t>(2 + rng_.Below(4));
    ranks_.resize(count);
    groups_.resize(1 + rng_.Below(3));
    for (uint32_t rank = 0; rank < count; ++rank) groups_[0].insert(rank);
    for (size_t i = 1; i < groups_.size(); ++i) {
      for (uint32_t rank = 0; rank < count; ++rank) {
        if (rng_.Below(3) != 0) groups_[i].insert(rank);
      }
      groups_[i].insert({0, count - 1});
    }
    for (int i = 0; i < 40; ++i) plan_.push_back(rng_.Below(groups_.size()));
  }

  // One rank goes on by one: it begins its next collective, or leaves the one that all have begun.
  void Step() {
    const auto rank = static_cast<uint32_t>(rng_.Below(ranks_.size()));
    State& state = ranks_[rank];
    if (state.inside) {
      const std::set<uint32_t>& members = groups_[plan_[state.at]];
      for (const uint32_t member : members) {
        const State& other = ranks_[member];
        if (other.at < state.at || (other.at == state.at && !other.inside)) return;
      }
      state.inside = false;
      ++state.at;
      return;
    }
    while (state.at < plan_.size() && !groups_[plan_[state.at]].contains(rank)) ++state.at;
    state.inside = state.at < plan_.size();
  }

  Ranks Reports() const {
    Ranks reports;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const State& state = ranks_[rank];
      std::vector<GroupProgress> groups;
      for (size_t i = 0; i < groups_.size(); ++i) {
        if (!groups_[i].contains(rank)) continue;
        uint64_t begun = 0;
        for (size_t at = 0; at < plan_.size(); ++at) {
          if (plan_[at] == i && (at < state.at || (at == state.at && state.inside))) ++begun;
        }
        groups.push_back({absl::StrCat(i), begun, static_cast<uint32_t>(groups_[i].size())});
      }
      const char* call = state.at % 2 == 0 ? "all_reduce" : "broadcast";
      reports.push_back(state.inside ? Rank(rank, groups, call, absl::StrCat(plan_[state.at]))
                                     : Rank(rank, groups));
    }
    return reports;
  }

 private:
  struct State {
    size_t at = 0;  // in the plan
    bool inside = false;
  };
  Rng rng_;
  std::vector<State> ranks_;
  std::vector<std::set<uint32_t>> groups_;
  std::vector<size_t> plan_;
};

TEST(ProveHangTest, AHealthyJobIsNeverProvenToHang) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Healthy job(seed);
    for (int i = 0; i < 400; ++i) {
      job.Step();
      const std::optional<HangProof> proof = ProveHang(job.Reports(), true);
      ASSERT_FALSE(proof.has_value()) << "seed " << seed << ": " << proof->verdict.evidence;
    }
  }
}

}  // namespace
}  // namespace ddprun::rendezvous::hang_proof_test
