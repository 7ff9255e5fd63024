#include "launcher/core/witness.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

TEST(ReadGroupsTest, ReadsWhatTheWitnessWrites) {
  Witness witness;
  ReadGroups("all_reduce\t1\n0\t65\t4\n1\t7\t2", &witness);
  ASSERT_EQ(witness.groups.size(), 2U);
  EXPECT_EQ(witness.groups[0], (rendezvous::GroupProgress{"0", 65, 4}));
  EXPECT_EQ(witness.groups[1], (rendezvous::GroupProgress{"1", 7, 2}));
  EXPECT_EQ(witness.inside_call, "all_reduce");
  EXPECT_EQ(witness.inside_group, "1");
  ReadGroups("\t\n0\t65\t4", &witness);
  EXPECT_EQ(witness.groups.size(), 1U);
  EXPECT_EQ(witness.inside_call, "");
}

// A worker may store anything.
TEST(ReadGroupsTest, WhatIsOfAnotherFormIsNotBelieved) {
  const std::string longest(rendezvous::kGroupNameBytesMax + 1, 'x');
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("all_reduce"),
        std::string("a\tb\tc\n0\t1\t1"), std::string("all_reduce\t5\n0\t1\t1"),
        absl::StrCat(longest, "\t0\n0\t1\t1"),
        absl::StrCat("all_reduce\t", longest, "\n", longest, "\t1\t1"),
        std::string("all_reduce\t0\n0\t-1\t1"), std::string("all_reduce\t0\n0\t1\t1\t1")}) {
    Witness witness;
    ReadGroups(text, &witness);
    EXPECT_EQ(witness.inside_call, "") << text;
  }
  std::string many = "\t";
  for (size_t i = 0; i < 2 * rendezvous::kGroupsMax; ++i) absl::StrAppend(&many, "\n", i, "\t1\t1");
  Witness witness;
  ReadGroups(many, &witness);
  EXPECT_EQ(witness.groups.size(), rendezvous::kGroupsMax);
}

}  // namespace
}  // namespace ddprun::launcher
