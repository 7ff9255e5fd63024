#include "rendezvous/server/core/call_budget.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/rng.h"

namespace ddprun::rendezvous {
namespace {

constexpr Instant kStart = Instant::FromNanoseconds(5'000'000'000);
constexpr absl::Duration kTick = absl::Nanoseconds(1);

// Returns how many calls of so many are answered.
int64_t Call(CallBudget& budget, const std::string& address, Instant now, int64_t calls = 1000) {
  int64_t answered = 0;
  for (int64_t i = 0; i < calls; ++i) answered += budget.Take(address, now) ? 1 : 0;
  EXPECT_EQ(budget.BrokenInvariant(), "");
  return answered;
}

TEST(CallBudget, ABurstThenOneForEachPause) {
  CallBudget budget;
  EXPECT_EQ(Call(budget, "a", kStart), CallBudget::kBurst);
  EXPECT_EQ(Call(budget, "a", kStart + CallBudget::kEvery - kTick), 0);
  EXPECT_EQ(Call(budget, "a", kStart + CallBudget::kEvery), 1);
  EXPECT_EQ(Call(budget, "a", kStart + 3.5 * CallBudget::kEvery), 2);
  EXPECT_EQ(Call(budget, "a", kStart + 4 * CallBudget::kEvery), 1) << "a part of a pause is kept";
}

TEST(CallBudget, OthersHaveTheirOwn) {
  CallBudget budget;
  Call(budget, "a", kStart);
  EXPECT_EQ(Call(budget, "b", kStart), CallBudget::kBurst);
}

TEST(CallBudget, NoMoreThanABurstIsSaved) {
  CallBudget budget;
  Call(budget, "a", kStart);
  EXPECT_EQ(Call(budget, "a", kStart + absl::Hours(100)), CallBudget::kBurst);
}

TEST(CallBudget, WhoseAllowanceIsWholeIsForgotten) {
  CallBudget budget;
  for (int i = 0; i < 100; ++i) budget.Take(absl::StrCat(i), kStart);
  EXPECT_EQ(budget.addresses(), 100U);
  budget.Take("a", kStart + CallBudget::kEvery);
  EXPECT_EQ(budget.addresses(), 1U);
}

TEST(CallBudget, ThoseForWhomThereIsNoRoomShare) {
  CallBudget budget;
  for (size_t i = 0; i < CallBudget::kAddressesMax; ++i) {
    EXPECT_TRUE(budget.Take(absl::StrCat("old", i), kStart));
  }
  int64_t answered = 0;
  for (int i = 0; i < 10'000; ++i) answered += budget.Take(absl::StrCat("new", i), kStart) ? 1 : 0;
  EXPECT_EQ(answered, CallBudget::kBurst);
  EXPECT_EQ(budget.addresses(), CallBudget::kAddressesMax + 1);
  EXPECT_EQ(budget.BrokenInvariant(), "");
  EXPECT_EQ(Call(budget, "old7", kStart), CallBudget::kBurst - 1)
      << "a known address keeps its own";
  EXPECT_TRUE(budget.Take("new", kStart + absl::Hours(1))) << "there is room again";
  EXPECT_EQ(budget.addresses(), 1U);
}

// In any stretch of time no address gets more than a burst and what its length gives.
TEST(CallBudget, HoldsUnderAnyCalls) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    CallBudget budget;
    Instant now = kStart;
    int64_t answered = 0;
    for (int i = 0; i < 5000; ++i) {
      if (rng.Chance(10)) now = now + absl::Milliseconds(rng.Below(100));
      answered += budget.Take("a", now) ? 1 : 0;
      ASSERT_LE(answered, CallBudget::kBurst + (now - kStart) / CallBudget::kEvery) << seed;
      ASSERT_EQ(budget.BrokenInvariant(), "");
    }
    EXPECT_GE(answered, (now - kStart) / CallBudget::kEvery * 9 / 10) << seed;
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
