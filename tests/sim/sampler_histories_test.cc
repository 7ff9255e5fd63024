// Jobs whose ranks come and go, with the real sampler: every sample once an epoch. Options:
// --histories N (20000), --first H (1), --jobs J: so many processes; a million in a few minutes.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/rng.h"
#include "ddprun/elastic_sampler.h"

namespace ddprun {
namespace {

uint64_t first_history = 1;
uint64_t history_count = 20'000;

constexpr uint64_t kEpochs = 2;
constexpr uint32_t kWorldMax = 6;
constexpr uint64_t kSizeMax = 90;

// Bugs: the checks must see each.
enum class Sabotage {
  kNone,
  kCountsDealt,     // the checkpoint counts what was dealt ahead
  kTrainsOldDeals,  // what was dealt before a reform is trained after it
  kCountsSteps,     // the state is a number of steps, not of samples
  kOwnStates,       // after a torn step each rank goes on from its own state
};

// What happened in a run of histories.
struct Met {
  uint64_t steps = 0;
  uint64_t restarts = 0;
  uint64_t reforms = 0;
  uint64_t torn = 0;            // faults that some ranks have the step before of, others not
  uint64_t refused = 0;         // shares from before a reform
  uint64_t shares_without = 0;  // ranks that had no samples in a step
};

// A model that learns by counting: how often it has seen each sample of each epoch.
using Model = std::vector<uint32_t>;

// One rank: its sampler, and what its loader has read ahead.
struct Rank {
  ElasticSampler sampler;
  std::deque<StepShare> ahead;
};

class History {
 public:
  History(uint64_t number, Sabotage sabotage, Met& met)
      : rng_(number * 0x9E3779B97F4A7C15), sabotage_(sabotage), met_(met) {
    size_ = 1 + rng_.Below(kSizeMax);
    options_.seed = rng_.Next();
    options_.shuffle = rng_.Chance(90);
    (rng_.Chance(50) ? options_.global_batch : options_.batch_per_rank) = 1 + rng_.Below(12);
    checkpoint_ = Create(0, 1).state();
    model_.resize(size_ * kEpochs);
    saved_model_ = model_;
    world_ = 1 + static_cast<uint32_t>(rng_.Below(kWorldMax));
    Restart();
  }

  // Returns: what is wrong, "" = nothing.
  std::string Run() {
    constexpr int kFaults = 2000;  // far more than the unluckiest needs
    for (int fault = 0; fault < kFaults && broken_.empty(); ++fault) {
      // The last fault never comes: else a job might never end.
      TrainUntilFault(fault + 1 < kFaults ? 1 + rng_.Below(12) : 2 * kEpochs * size_);
      if (Done() || !broken_.empty()) break;
      WalkWorld();
      rng_.Chance(50) ? Restart() : Reform();
    }
    if (broken_.empty()) CheckEnd();
    return broken_;
  }

 private:
  ElasticSampler Create(uint32_t rank, uint32_t world) const {
    return ElasticSampler::Create(size_, options_, rank, world).value();
  }

  const SamplerState& state() const { return ranks_[0].sampler.state(); }
  bool Done() const { return state().epoch == kEpochs; }

  // Mostly a node more or less, now and then any number.
  void WalkWorld() {
    if (rng_.Chance(20)) {
      world_ = 1 + static_cast<uint32_t>(rng_.Below(kWorldMax));
    } else if (rng_.Chance(50)) {
      world_ = std::min(kWorldMax, world_ + 1);
    } else {
      world_ = std::max<uint32_t>(1, world_ - 1);
    }
  }

  // All processes are new, and go on from the checkpoint.
  void Restart() {
    ++met_.restarts;
    model_ = saved_model_;
    ranks_.clear();
    SamplerState state = checkpoint_;
    if (sabotage_ == Sabotage::kCountsSteps && state.consumed > 0) {
      const uint64_t batch =
          options_.global_batch > 0 ? options_.global_batch : options_.batch_per_rank * world_;
      state.consumed = std::min(size_ - 1, saved_steps_ * batch);
    }
    for (uint32_t rank = 0; rank < world_; ++rank) {
      ranks_.push_back({.sampler = Create(rank, world_), .ahead = {}});
      // The state goes through its text, as in a file.
      Must(ranks_.back().sampler.Restore(SamplerState::Parse(state.Serialize()).value()));
    }
  }

  // The processes that are left go on from where rank 0 is; further ones are new.
  void Reform() {
    ++met_.reforms;
    const SamplerState state = this->state();
    std::vector<Rank> ranks;
    for (uint32_t rank = 0; rank < world_; ++rank) {
      if (rank < ranks_.size()) {
        ranks.push_back(std::move(ranks_[rank]));
        Must(ranks.back().sampler.Reform(rank, world_));
      } else {
        ranks.push_back({.sampler = Create(rank, world_), .ahead = {}});
        if (sabotage_ == Sabotage::kOwnStates) Must(ranks.back().sampler.Restore(state));
      }
      if (sabotage_ != Sabotage::kOwnStates) Must(ranks.back().sampler.Restore(state));
    }
    ranks_ = std::move(ranks);
    if (sabotage_ == Sabotage::kTrainsOldDeals) return;
    for (Rank& rank : ranks_) {
      for (const StepShare& share : rank.ahead) {
        ++met_.refused;
        if (rank.sampler.Commit(share).ok()) Break("an old share was committed");
      }
      rank.ahead.clear();
    }
  }

  void TrainUntilFault(uint64_t steps) {
    for (; steps > 0 && !Done() && broken_.empty(); --steps) {
      std::vector<StepShare> shares;
      for (Rank& rank : ranks_) {
        for (uint64_t more = 1 + rng_.Below(4); more > 0; --more) {
          if (rank.ahead.size() < 5) rank.ahead.push_back(rank.sampler.Deal());
        }
        shares.push_back(std::move(rank.ahead.front()));
        rank.ahead.pop_front();
      }
      CheckStep(shares);
      // The fault comes when rank 0 has its sums and others haven't. A fault before any rank has
      // them is a fault one step earlier.
      const bool torn = steps == 1 && ranks_.size() > 1 && rng_.Chance(50);
      met_.torn += torn ? 1 : 0;
      Learn(shares, torn ? 1 + rng_.Below(ranks_.size() - 1) : ranks_.size());
      if (rng_.Chance(30)) Save();
    }
  }

  // The first `committing` ranks have the step.
  void Learn(const std::vector<StepShare>& shares, size_t committing) {
    ++met_.steps;
    ++steps_of_epoch_;
    for (const StepShare& share : shares) {
      met_.shares_without += share.indices.empty() ? 1 : 0;
      for (const int64_t index : share.indices) {
        if (share.epoch < kEpochs) ++model_[share.epoch * size_ + static_cast<uint64_t>(index)];
      }
    }
    if (shares[0].last_of_epoch) steps_of_epoch_ = 0;
    for (size_t rank = 0; rank < committing; ++rank) {
      const absl::Status status = ranks_[rank].sampler.Commit(shares[rank]);
      if (status.ok()) continue;
      if (sabotage_ == Sabotage::kNone) Break(status.ToString());
      SkipTo(ranks_[rank].sampler, shares[rank]);
    }
  }

  // Skips to the share, as a sampler without the check would.
  void SkipTo(ElasticSampler& sampler, const StepShare& share) {
    SamplerState state = sampler.state();
    state.epoch = share.epoch + (share.last_of_epoch ? 1 : 0);
    state.consumed = share.last_of_epoch ? 0 : share.first + share.global_count;
    Must(sampler.Restore(state));
  }

  void Save() {
    checkpoint_ = state();
    saved_model_ = model_;
    saved_steps_ = steps_of_epoch_;
    if (sabotage_ != Sabotage::kCountsDealt || ranks_[0].ahead.empty()) return;
    const StepShare& last = ranks_[0].ahead.back();
    checkpoint_.epoch = last.epoch + (last.last_of_epoch ? 1 : 0);
    checkpoint_.consumed = last.last_of_epoch ? 0 : last.first + last.global_count;
  }

  // The ranks' shares are one step, divided evenly.
  void CheckStep(const std::vector<StepShare>& shares) {
    uint64_t sum = 0;
    double weights = 0;
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      const StepShare& share = shares[rank];
      sum += share.indices.size();
      weights += share.weight;
      if (share.first != shares[0].first || share.epoch != shares[0].epoch ||
          share.global_count != shares[0].global_count) {
        return Break("the ranks are at different steps");
      }
      const uint64_t even = share.global_count / shares.size();
      if (share.indices.size() < even || share.indices.size() > even + 1) {
        return Break("a share is not even");
      }
    }
    if (sum != shares[0].global_count) Break("the shares are not the step");
    if (std::abs(weights - static_cast<double>(shares.size())) > 1e-9) Break("weights");
  }

  void CheckEnd() {
    if (!Done()) return Break("the job didn't end");
    for (uint64_t i = 0; i < model_.size(); ++i) {
      if (model_[i] == 1) continue;
      return Break(absl::StrCat("sample ", i % size_, " of ", size_, " came ", model_[i],
                                " times in epoch ", i / size_));
    }
  }

  void Must(const absl::Status& status) {
    if (!status.ok()) Break(status.ToString());
  }

  void Break(std::string what) {
    if (broken_.empty()) broken_ = std::move(what);
  }

  Rng rng_;
  const Sabotage sabotage_;
  Met& met_;
  uint64_t size_ = 0;
  ElasticSamplerOptions options_;
  uint32_t world_ = 1;
  std::vector<Rank> ranks_;
  Model model_;
  uint64_t steps_of_epoch_ = 0;
  SamplerState checkpoint_;
  Model saved_model_;
  uint64_t saved_steps_ = 0;
  std::string broken_;
};

TEST(SamplerHistories, EachSampleOnceAnEpoch) {
  Met met;
  for (uint64_t number = first_history; number < first_history + history_count; ++number) {
    const std::string broken = History(number, Sabotage::kNone, met).Run();
    ASSERT_EQ("", broken) << "history " << number << " (--histories 1 --first " << number << ")";
  }
  std::cout << history_count << " histories from " << first_history << ": " << met.steps
            << " steps, " << met.restarts << " restarts, " << met.reforms << " reforms, "
            << met.torn << " torn steps, " << met.refused << " shares refused, "
            << met.shares_without << " shares without samples\n";
  if (history_count < 1000) return;
  // Each kind of fault was frequent.
  EXPECT_GT(met.restarts, history_count);
  EXPECT_GT(met.reforms, history_count / 2);
  EXPECT_GT(met.torn, history_count / 4);
  EXPECT_GT(met.refused, history_count / 2);
  EXPECT_GT(met.shares_without, history_count / 10);
}

class Twin : public ::testing::TestWithParam<Sabotage> {};

TEST_P(Twin, IsCaught) {
  Met met;
  for (uint64_t number = 1; number <= 50; ++number) {
    if (!History(number, GetParam(), met).Run().empty()) return;
  }
  FAIL() << "nobody noticed the bug within 50 histories";
}

INSTANTIATE_TEST_SUITE_P(SamplerHistories, Twin,
                         ::testing::Values(Sabotage::kCountsDealt, Sabotage::kTrainsOldDeals,
                                           Sabotage::kCountsSteps, Sabotage::kOwnStates));

// Returns the exit status. Requires: histories >= jobs.
int RunInProcesses(uint64_t jobs) {
  GTEST_FLAG_SET(filter, "SamplerHistories.EachSampleOnceAnEpoch");
  const uint64_t first = first_history;
  const uint64_t all = history_count;
  std::vector<pid_t> children;
  for (uint64_t job = 0; job < jobs; ++job) {
    first_history = first + all * job / jobs;
    history_count = first + all * (job + 1) / jobs - first_history;
    std::cout << std::flush;
    const pid_t child = fork();
    if (child == 0) std::_Exit(RUN_ALL_TESTS());
    if (child > 0) children.push_back(child);
  }
  bool ok = children.size() == jobs;
  for (const pid_t child : children) {
    int status = 0;
    ok &= waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  uint64_t jobs = 0;
  for (int i = 1; i + 1 < argc; ++i) {
    const std::string option = argv[i];
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--histories") ddprun::history_count = value;
    if (option == "--first") ddprun::first_history = value;
    if (option == "--jobs") jobs = value;
  }
  return jobs > 0 ? ddprun::RunInProcesses(jobs) : RUN_ALL_TESTS();
}
