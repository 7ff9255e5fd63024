#include "worker/torch/checkpoint/replica_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/rng.h"

namespace ddprun::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Holders = std::vector<std::vector<uint32_t>>;

TEST(ChooseHoldersTest, AnotherHostComesFirst) {
  EXPECT_THAT(ChooseHolders({0}, 1), ElementsAre(IsEmpty()));
  EXPECT_EQ(ChooseHolders({0, 0, 0}, 1), (Holders{{1}, {2}, {0}}));
  EXPECT_EQ(ChooseHolders({0, 0, 1, 1}, 1), (Holders{{2}, {3}, {0}, {1}}));
  // Two copies are on two hosts.
  EXPECT_EQ(ChooseHolders({0, 0, 1, 1, 2, 2}, 2),
            (Holders{{2, 4}, {3, 5}, {4, 0}, {5, 1}, {0, 2}, {1, 3}}));
  // Ranks of a host needn't follow each other.
  EXPECT_EQ(ChooseHolders({0, 1, 0, 1}, 1), (Holders{{1}, {0}, {3}, {2}}));
  // There are not more others.
  EXPECT_EQ(ChooseHolders({0, 0}, 5), (Holders{{1}, {0}}));
}

TEST(ChooseHoldersTest, EachKeepsAsManyAndNoneItsOwnTwice) {
  Rng rng(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<uint32_t> hosts(1 + rng.Below(12));
    for (uint32_t& host : hosts) host = static_cast<uint32_t>(rng.Below(4));
    const auto copies = static_cast<uint32_t>(rng.Below(4));
    const auto wanted = std::min<size_t>(copies, hosts.size() - 1);
    std::map<uint32_t, size_t> kept;
    const Holders holders = ChooseHolders(hosts, copies);
    for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
      std::set<uint32_t> distinct(holders[rank].begin(), holders[rank].end());
      EXPECT_EQ(distinct.size(), wanted);
      EXPECT_FALSE(distinct.contains(rank));
      for (const uint32_t holder : holders[rank]) ++kept[holder];
    }
    for (const auto& [holder, count] : kept) EXPECT_EQ(count, wanted);
  }
}

// With hosts of one size all copies are on other hosts, while there are enough.
TEST(ChooseHoldersTest, EvenHostsLoseNothingWithOneOfThem) {
  for (uint32_t count = 2; count <= 5; ++count) {
    for (uint32_t size = 1; size <= 4; ++size) {
      std::vector<uint32_t> hosts;
      for (uint32_t rank = 0; rank < count * size; ++rank) hosts.push_back(rank / size);
      const Holders holders = ChooseHolders(hosts, count - 1);
      for (uint32_t rank = 0; rank < hosts.size(); ++rank) {
        std::set<uint32_t> used = {hosts[rank]};
        for (const uint32_t holder : holders[rank]) used.insert(hosts[holder]);
        EXPECT_EQ(used.size(), count) << count << " hosts of " << size;
      }
    }
  }
}

RecordKey Key(int64_t step, uint32_t shard, uint64_t generation = 1, uint32_t world = 2) {
  return {.generation = generation, .world_size = world, .step = step, .shard = shard};
}

TEST(ChooseRecoveryPointTest, TheNewestThatIsWhole) {
  EXPECT_FALSE(ChooseRecoveryPoint({{}, {}}).has_value());
  EXPECT_FALSE(ChooseRecoveryPoint({{Key(5, 0)}, {}}).has_value());
  const auto point = ChooseRecoveryPoint({{Key(5, 0), Key(4, 0), Key(4, 1)}, {}});
  ASSERT_TRUE(point.has_value());
  EXPECT_EQ(point->state.step, 4);
  EXPECT_THAT(point->sources, ElementsAre(0, 0));
}

TEST(ChooseRecoveryPointTest, ARankKeepsItsOwnAndHistoriesDoNotMix) {
  const auto own = ChooseRecoveryPoint({{Key(4, 0), Key(4, 1)}, {Key(4, 0), Key(4, 1)}});
  ASSERT_TRUE(own.has_value());
  EXPECT_THAT(own->sources, ElementsAre(0, 1));
  // Step 5 was begun twice.
  EXPECT_FALSE(ChooseRecoveryPoint({{Key(5, 0, 1)}, {Key(5, 1, 2)}}).has_value());
  EXPECT_FALSE(ChooseRecoveryPoint({{Key(5, 0, 1, 2)}, {Key(5, 1, 1, 3)}}).has_value());
  const auto later =
      ChooseRecoveryPoint({{Key(5, 0, 1), Key(5, 0, 2)}, {Key(5, 1, 1), Key(5, 1, 2)}});
  EXPECT_EQ(later->state.generation, 2U);
}

// The whole protocol as numbers: steps, copies on their way, and ranks that die at any moment.
class Model {
 public:
  Model(Rng& rng, uint32_t ranks, uint32_t copies) : rng_(rng), copies_(copies), ranks_(ranks) {
    hosts_.resize(ranks);
    for (uint32_t i = 0; i < ranks; ++i) hosts_[i] = i / 2;
    Begin();
  }

  // Plays one step of all ranks, up to a random moment if so many ranks are to die in it.
  void Step(size_t deaths) {
    const bool commits = deaths == 0 || rng_.Below(3) > 0;
    Arrive(commits);
    std::set<uint32_t> done;  // ranks that finish the optimizer's step and begin the next round
    if (commits) {
      for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
        if (deaths > 0 && rng_.Below(2) == 0) continue;
        Drop(rank);
        if (deaths > 0 && rng_.Below(2) == 0) continue;
        done.insert(rank);
      }
    }
    if (!done.empty()) furthest_ = std::max(furthest_, step_ + 1);
    if (deaths == 0) {
      ++step_;
      Begin();
      return;
    }
    for (const uint32_t rank : done) Hold(rank, Own(rank, step_ + 1));
    Die(deaths);
  }

  int64_t lost() const { return lost_; }
  bool whole() const { return whole_; }

 private:
  RecordKey Own(uint32_t rank, int64_t step) const {
    return {.generation = generation_,
            .world_size = static_cast<uint32_t>(ranks_.size()),
            .step = step,
            .shard = rank};
  }
  void Hold(uint32_t rank, const RecordKey& key) { ranks_[rank].insert(key); }
  void Begin() {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) Hold(rank, Own(rank, step_));
  }
  // Each copy arrives, or, unless all must, any of them.
  void Arrive(bool all) {
    const Holders holders = ChooseHolders(hosts_, copies_);
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const uint32_t holder : holders[rank]) {
        if (all || rng_.Below(2) == 0) Hold(holder, Own(rank, step_));
      }
    }
  }
  void Drop(uint32_t rank) {
    std::erase_if(ranks_[rank],
                  [&](const RecordKey& key) { return !key.SameState(Own(rank, step_)); });
  }
  void Die(size_t deaths) {
    std::set<uint32_t> dead;
    while (dead.size() < deaths) dead.insert(static_cast<uint32_t>(rng_.Below(ranks_.size())));
    for (const uint32_t rank : dead) ranks_[rank].clear();
    std::vector<std::vector<RecordKey>> keys;
    for (const auto& held : ranks_) keys.emplace_back(held.begin(), held.end());
    const auto point = ChooseRecoveryPoint(keys);
    whole_ = point.has_value();
    if (!whole_) return;
    lost_ = furthest_ - point->state.step;
    for (auto& held : ranks_) {
      std::erase_if(held, [&](const RecordKey& key) {
        return !key.SameState(point->state) && key.step >= point->state.step;
      });
    }
    ++generation_;
    furthest_ = step_ = point->state.step;
    Begin();
  }

  Rng& rng_;
  const uint32_t copies_;
  std::vector<std::set<RecordKey>> ranks_;  // what each has
  std::vector<uint32_t> hosts_;
  uint64_t generation_ = 1;
  int64_t step_ = 0;      // that all have done
  int64_t furthest_ = 0;  // that any has
  int64_t lost_ = 0;
  bool whole_ = true;
};

TEST(ReplicaProtocolTest, LosingAllCopiesButOneCostsAStep) {
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    Rng rng(seed);
    const auto ranks = static_cast<uint32_t>(2 + rng.Below(6));
    const auto copies = static_cast<uint32_t>(1 + rng.Below(std::min<uint64_t>(3, ranks - 1)));
    Model model(rng, ranks, copies);
    for (int fault = 0; fault < 4; ++fault) {
      const uint64_t quiet = 1 + rng.Below(3);  // until all copies are there again
      for (uint64_t step = 0; step < quiet; ++step) model.Step(0);
      model.Step(1 + rng.Below(copies));
      ASSERT_TRUE(model.whole()) << seed;
      ASSERT_LE(model.lost(), 1) << seed;
    }
  }
}

// A death before a new round has been committed costs one step more: the copies of the round before
// it are used.
TEST(ReplicaProtocolTest, ASecondFaultAtOnceFindsTheCopiesOfBefore) {
  int64_t most = 0;
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    Rng rng(seed);
    Model model(rng, 6, 2);
    for (int step = 0; step < 3; ++step) model.Step(0);
    model.Step(1);
    ASSERT_TRUE(model.whole()) << seed;
    model.Step(1);
    ASSERT_TRUE(model.whole()) << seed;
    most = std::max(most, model.lost());
  }
  EXPECT_LE(most, 2);
}

TEST(ReplicaProtocolTest, TwinThatLosesAsManyAsThereAreCopiesCanLoseAShare) {
  int lost = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Rng rng(seed);
    Model model(rng, 4, 1);
    for (int step = 0; step < 3; ++step) model.Step(0);
    model.Step(2);
    if (!model.whole()) ++lost;
  }
  EXPECT_GT(lost, 100);
}

}  // namespace
}  // namespace ddprun::worker
