#include "rendezvous/core/releases.h"

#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

TEST(Releases, MeetIfTheirMinorNumbersDifferByOneAtMost) {
  struct Row {
    const char* one;
    const char* other;
    bool meet;
  };
  const Row rows[] = {
      {"1.4.2", "1.4.2", true},  {"1.4.2", "1.4.0", true},     {"1.4.2", "1.5.0", true},
      {"1.4.2", "1.6.0", false}, {"1.9.0", "1.10.0", true},    {"1.9.0", "1.11.0", false},
      {"1.0.0", "0.9.0", false}, {"1.4.0", "2.4.0", false},    {"0.1.0", "0.2.7", true},
      {"0.1.0", "0.3.0", false}, {"1.4.0", "1.5.0-rc1", true}, {"1.4.0", "1.6", false},
      {"1.4.0", "", true},       {"1.4.0", "latest", true},    {"1.4.0", "9", true},
      {"1.4.0", "1.x.0", true},  {"1.4.0", "-1.6.0", true},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(MayMeet(row.one, row.other), row.meet) << row.one << " and " << row.other;
    EXPECT_EQ(MayMeet(row.other, row.one), row.meet) << row.other << " and " << row.one;
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
