#include "base/strong.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <type_traits>

namespace ddprun {
namespace {

using Rank = Strong<struct RankTag, uint32_t>;
using Count = Strong<struct CountTag, uint32_t>;
using Name = Strong<struct NameTag, std::string>;

// What the type is for: none of these may compile.
static_assert(!std::is_convertible_v<uint32_t, Rank>);
static_assert(!std::is_convertible_v<Rank, uint32_t>);
static_assert(!std::is_constructible_v<Rank, Count>);
static_assert(!std::is_assignable_v<Rank&, Count>);
static_assert(sizeof(Rank) == sizeof(uint32_t));

TEST(StrongTest, ComparesAndCounts) {
  EXPECT_LT(Rank(1), Rank(2));
  EXPECT_EQ(Rank(1).Next(), Rank(2));
  EXPECT_EQ(Rank().value(), 0U);
  EXPECT_EQ(Rank(UINT32_MAX).Next(), Rank(0));
}

TEST(StrongTest, HoldsAnyValue) {
  EXPECT_LT(Name("a"), Name("b"));
  EXPECT_EQ(Name("node").value(), "node");
}

}  // namespace
}  // namespace ddprun
