#include "rendezvous/core/generation/rank_assigner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/rng.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::ElementsAre;

Candidate Make(const std::string& id, uint64_t order, std::optional<uint32_t> claim = {},
               bool host = false) {
  return {.node_id = NodeId(id), .join_order = order, .claim = claim, .hosts_endpoint = host};
}

std::vector<NodeId> Ids(const std::vector<std::string>& names) {
  std::vector<NodeId> ids;
  for (const std::string& name : names) ids.emplace_back(name);
  return ids;
}

std::vector<std::string> Names(const std::vector<std::string>& previous,
                               const std::vector<Candidate>& candidates, size_t wanted) {
  std::vector<std::string> names;
  for (const size_t index : AssignRanks(Ids(previous), candidates, wanted)) {
    names.push_back(candidates[index].node_id.value());
  }
  return names;
}

TEST(AssignRanks, FirstGenerationByClaimHostAndJoinOrder) {
  EXPECT_THAT(Names({}, {Make("a", 1), Make("b", 2)}, 2), ElementsAre("a", "b"));
  EXPECT_THAT(Names({}, {Make("a", 1), Make("b", 2, {}, true)}, 2), ElementsAre("b", "a"));
  EXPECT_THAT(Names({}, {Make("a", 1, {}, true), Make("b", 2, 0)}, 2), ElementsAre("b", "a"));
  EXPECT_THAT(Names({}, {Make("a", 1, 1), Make("b", 2), Make("c", 3)}, 3),
              ElementsAre("b", "a", "c"));
}

TEST(AssignRanks, WhoTakesPartWhenThereAreTooMany) {
  EXPECT_THAT(Names({}, {Make("a", 1), Make("b", 2), Make("c", 3, 0)}, 2), ElementsAre("c", "a"));
  EXPECT_THAT(Names({"x", "c"}, {Make("a", 1), Make("b", 2), Make("c", 3)}, 2),
              ElementsAre("a", "c"));
}

TEST(AssignRanks, ReplacementTakesTheVacatedSlot) {
  EXPECT_THAT(Names({"a", "b", "c"}, {Make("a", 1), Make("c", 3), Make("x", 4)}, 3),
              ElementsAre("a", "x", "c"));
  EXPECT_THAT(Names({"a", "b"}, {Make("b", 2), Make("x", 4, {}, true)}, 2), ElementsAre("x", "b"));
}

TEST(AssignRanks, RanksCloseUpOnlyOnShrinking) {
  EXPECT_THAT(Names({"a", "b", "c"}, {Make("a", 1), Make("c", 3)}, 2), ElementsAre("a", "c"));
  EXPECT_THAT(Names({"a", "b", "c"}, {Make("c", 3), Make("x", 4)}, 2), ElementsAre("c", "x"));
  EXPECT_THAT(Names({"a", "b"}, {Make("b", 2), Make("x", 4), Make("y", 5)}, 3),
              ElementsAre("x", "b", "y"));
}

TEST(AssignRanks, ClaimsThatDontFitKeepTheirOrder) {
  EXPECT_THAT(Names({}, {Make("a", 1, 3), Make("b", 2, 0), Make("c", 3, 2)}, 3),
              ElementsAre("b", "c", "a"));
  EXPECT_THAT(Names({}, {Make("a", 1, 3), Make("b", 2, 0), Make("c", 3)}, 3),
              ElementsAre("b", "c", "a"));
}

// What R2 says, checked one sentence at a time on random clusters.
class Model {
 public:
  explicit Model(uint64_t seed) : rng_(seed) {
    const size_t before = rng_.Below(6);
    for (size_t i = 0; i < before; ++i) previous_.push_back(absl::StrCat("n", i));
    std::vector<uint32_t> claims = {0, 1, 2, 3, 4, 5, 6, 7};
    const bool with_claims = rng_.Chance(50);
    const size_t count = 1 + rng_.Below(7);
    std::set<std::string> used;
    while (candidates_.size() < count) {
      const std::string id = absl::StrCat("n", rng_.Below(12));
      if (!used.insert(id).second) continue;
      std::optional<uint32_t> claim;
      if (with_claims && rng_.Chance(40)) {
        const size_t at = rng_.Below(claims.size());
        claim = claims[at];
        claims.erase(claims.begin() + static_cast<long>(at));
      }
      candidates_.push_back(Make(id, candidates_.size() + 1, claim, rng_.Chance(20)));
    }
    wanted_ = 1 + rng_.Below(count);
  }

  void Check() {
    order_ = AssignRanks(Ids(previous_), candidates_, wanted_);
    ASSERT_EQ(order_.size(), wanted_);
    ASSERT_EQ(std::set<size_t>(order_.begin(), order_.end()).size(), wanted_);
    CheckChoice();
    CheckClaims();
    CheckSurvivors();
  }

 private:
  int OldSlot(const Candidate& candidate) const {
    const auto found = std::find(previous_.begin(), previous_.end(), candidate.node_id.value());
    return found == previous_.end() ? -1 : static_cast<int>(found - previous_.begin());
  }
  int NewSlot(size_t index) const {
    const auto found = std::find(order_.begin(), order_.end(), index);
    return found == order_.end() ? -1 : static_cast<int>(found - order_.begin());
  }

  // No newcomer runs while a survivor doesn't.
  void CheckChoice() const {
    bool survivor_left_out = false;
    bool newcomer_taken = false;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const bool survivor = OldSlot(candidates_[i]) >= 0;
      if (survivor && NewSlot(i) < 0) survivor_left_out = true;
      if (!survivor && NewSlot(i) >= 0) newcomer_taken = true;
    }
    EXPECT_FALSE(survivor_left_out && newcomer_taken);
  }

  // A claim is the rank if all claims fit; their order is kept always.
  void CheckClaims() const {
    std::map<uint32_t, int> slots;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].claim && NewSlot(i) >= 0) slots[*candidates_[i].claim] = NewSlot(i);
    }
    if (slots.empty()) return;
    const bool fit = slots.rbegin()->first < wanted_;
    int last = -1;
    for (const auto& [claim, slot] : slots) {
      if (fit) {
        EXPECT_EQ(slot, static_cast<int>(claim));
      }
      EXPECT_GT(slot, last);
      EXPECT_LE(slot, static_cast<int>(claim));
      last = slot;
    }
  }

  // Survivors without claims keep their order, and their slots too while the world doesn't shrink
  // and no claim is in their way.
  void CheckSurvivors() const {
    std::map<int, int> moves;  // old slot to new slot
    bool any_claim = false;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      any_claim |= candidates_[i].claim.has_value();
      if (candidates_[i].claim || NewSlot(i) < 0 || OldSlot(candidates_[i]) < 0) continue;
      moves[OldSlot(candidates_[i])] = NewSlot(i);
    }
    int last = -1;
    for (const auto& [before, after] : moves) {
      EXPECT_GT(after, last);
      last = after;
      if (!any_claim && wanted_ >= previous_.size()) {
        EXPECT_EQ(after, before);
      }
    }
  }

  Rng rng_;
  std::vector<std::string> previous_;
  std::vector<Candidate> candidates_;
  size_t wanted_ = 0;
  std::vector<size_t> order_;
};

TEST(AssignRanks, KeepsItsRulesOnRandomClusters) {
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Model(seed).Check();
    if (HasFailure()) return;
  }
}

TEST(PlaceWorkers, PrefixSumsOverTheNodesAndTheirRoles) {
  const std::vector<Placement> placements =
      PlaceWorkers({{2, "trainer"}, {1, "reader"}, {3, "trainer"}});
  ASSERT_EQ(placements.size(), 3u);
  EXPECT_EQ(placements[0].base_rank, 0u);
  EXPECT_EQ(placements[1].base_rank, 2u);
  EXPECT_EQ(placements[2].base_rank, 3u);
  EXPECT_EQ(placements[2].base_role_rank, 2u);
  EXPECT_EQ(placements[2].role_world_size, 5u);
  EXPECT_EQ(placements[1].role_world_size, 1u);
}

}  // namespace
}  // namespace ddprun::rendezvous
