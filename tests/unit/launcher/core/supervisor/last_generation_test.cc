#include "launcher/core/supervisor/ending.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using rendezvous::Generation;

TEST(LastGeneration, KeepsWhatItsWorkersMarked) {
  LastGeneration last;
  EXPECT_FALSE(last.step().has_value());
  last.OnEmpty({.generation = Generation(1), .step = 7, .time = rendezvous::NodeTime()});
  EXPECT_EQ(last.step(), 7U);
  EXPECT_TRUE(last.time().has_value());
  last.OnEmpty({.generation = Generation(2)});
  EXPECT_FALSE(last.step().has_value()) << "the next one marked nothing";
}

TEST(LastGeneration, ASuccessIsWithdrawnByAFailureElsewhereInTheSameGeneration) {
  LastGeneration last;
  EXPECT_FALSE(last.Withdraw(Generation())) << "there was none";
  last.Succeed(Generation(2));
  EXPECT_TRUE(last.succeeded());
  EXPECT_FALSE(last.Withdraw(Generation(1)));
  EXPECT_TRUE(last.Withdraw(Generation(2)));
  EXPECT_FALSE(last.succeeded());
  EXPECT_FALSE(last.Withdraw(Generation(2))) << "once";
}

TEST(LastGeneration, TheNextOneBeginsWithoutASuccess) {
  LastGeneration last;
  last.Succeed(Generation(2));
  last.OnAssigned();
  EXPECT_FALSE(last.succeeded());
}

TEST(LastGeneration, StoresEndOnce) {
  LastGeneration last;
  EXPECT_TRUE(last.EndStores(Generation(1)));
  EXPECT_FALSE(last.EndStores(Generation(1)));
  EXPECT_TRUE(last.EndStores(Generation(3)));
}

TEST(LastGenerationDeathTest, GenerationsEndInOrderAndASuccessHasItsStores) {
  LastGeneration last;
  last.EndStores(Generation(3));
  EXPECT_DEATH(last.EndStores(Generation(2)), "generations end one after the other");
  EXPECT_DEATH(last.Succeed(Generation(3)), "leave their stores to others");
}

}  // namespace
}  // namespace ddprun::launcher
