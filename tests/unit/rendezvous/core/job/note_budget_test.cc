#include "rendezvous/core/job/step_effects.h"

#include <gtest/gtest.h>

namespace ddprun::rendezvous::note_budget_test {
namespace {

constexpr Instant kStart = Instant::FromNanoseconds(5'000'000'000);

TEST(NoteBudget, ABurstThenOneForEachPause) {
  NoteBudget budget;
  for (uint32_t i = 0; i < NoteBudget::kBurst; ++i) EXPECT_EQ(budget.Take(kStart), 0U) << i;
  EXPECT_EQ(budget.Take(kStart), std::nullopt);
  EXPECT_EQ(budget.Take(kStart + NoteBudget::kEvery - absl::Nanoseconds(1)), std::nullopt);
  EXPECT_EQ(budget.Take(kStart + NoteBudget::kEvery), 2U)
      << "the two that were left out are counted";
  EXPECT_EQ(budget.Take(kStart + NoteBudget::kEvery), std::nullopt);
  EXPECT_EQ(budget.BrokenInvariant(kStart + NoteBudget::kEvery), "");
}

TEST(NoteBudget, APartOfAPauseIsKept) {
  NoteBudget budget;
  for (uint32_t i = 0; i < NoteBudget::kBurst; ++i) budget.Take(kStart);
  EXPECT_NE(budget.Take(kStart + 1.5 * NoteBudget::kEvery), std::nullopt);
  EXPECT_NE(budget.Take(kStart + 2 * NoteBudget::kEvery), std::nullopt);
}

TEST(NoteBudget, NoMoreThanABurstIsSaved) {
  NoteBudget budget;
  const Instant later = kStart + absl::Hours(100);
  for (uint32_t i = 0; i < NoteBudget::kBurst; ++i) EXPECT_NE(budget.Take(later), std::nullopt);
  EXPECT_EQ(budget.Take(later), std::nullopt);
}

}  // namespace
}  // namespace ddprun::rendezvous::note_budget_test
