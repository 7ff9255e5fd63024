#include "rendezvous/core/generation/growth.h"

#include <gtest/gtest.h>

#include <vector>

#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous::growth_test {
namespace {

constexpr Instant kStart = Instant::FromNanoseconds(1'000'000'000);

JobSpec Spec() {
  JobSpec spec;
  spec.nodes_min = 2;
  spec.nodes_max = 4;
  spec.last_call_timeout = absl::Seconds(30);
  return spec;
}

Round TwoMembers() {
  std::vector<RoundMember> members(2);
  members[0].worker_count = members[1].worker_count = 1;
  members[1].placement.base_rank = 1;
  return Round(Generation(1), kStart, members, {});
}

TEST(Growth, ALastCallAfterTheFirstNewcomer) {
  const Round round = TwoMembers();
  Growth growth;
  EXPECT_TRUE(growth.Decide(Spec(), round, 0, kStart).until.is_infinite());
  growth.Watch(kStart, true);
  growth.Watch(kStart + absl::Seconds(3), true);
  const Instant end = kStart + absl::Seconds(30);
  EXPECT_EQ(growth.Decide(Spec(), round, 1, kStart).until, end);
  EXPECT_TRUE(growth.Decide(Spec(), round, 1, end).close);
  growth.Watch(end, false);
  growth.Watch(end, true);
  EXPECT_FALSE(growth.Decide(Spec(), round, 1, end).close) << "it was another newcomer";
  EXPECT_TRUE(growth.Decide(Spec(), round, 2, end).close) << "the job is full with them";
}

// The pause doubles up to an hour, and is over with the first growth that lasts.
TEST(Growth, OneThatGainsNothingMakesTheNextOneWait) {
  Growth growth;
  EXPECT_EQ(growth.least_uptime(), absl::ZeroDuration());
  for (const int64_t seconds : {10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600}) {
    growth.Begin(2, 1);
    growth.NoteFormed(2);
    EXPECT_EQ(growth.least_uptime(), absl::Seconds(seconds));
  }
  growth.Begin(2, 1);
  growth.NoteFormed(3);
  EXPECT_EQ(growth.least_uptime(), kGrowthUptimeMax) << "it isn't settled yet";
  growth.NoteEnd(kProgressUptime);
  EXPECT_EQ(growth.least_uptime(), absl::ZeroDuration());
  EXPECT_EQ(growth.BrokenInvariant(kStart), "");
}

TEST(Growth, NodesThatAreSoonLostAgainAreNoGain) {
  Growth growth;
  growth.Begin(2, 1);
  growth.NoteFormed(3);
  growth.NoteEnd(kProgressUptime - absl::Milliseconds(1));
  growth.NoteFormed(2);
  EXPECT_EQ(growth.fruitless(), 1U);
  growth.Begin(2, 1);
  growth.NoteFormed(3);
  growth.NoteEnd(absl::Seconds(1));
  growth.NoteFormed(3);  // a worker failed, and all are still here
  EXPECT_EQ(growth.fruitless(), 1U);
  growth.NoteEnd(kProgressUptime);
  growth.NoteFormed(2);  // it was worth it
  EXPECT_EQ(growth.fruitless(), 0U);
}

TEST(Growth, TheGenerationRunsItsTimeEvenWhenTheJobWouldBeFull) {
  const Round round = TwoMembers();
  Growth growth;
  growth.Begin(2, 2);
  growth.NoteFormed(2);
  growth.Watch(kStart, true);
  const Instant end = kStart + kGrowthUptime;
  EXPECT_EQ(growth.Decide(Spec(), round, 2, kStart).until, end);
  EXPECT_FALSE(growth.Decide(Spec(), round, 2, kStart).close);
  EXPECT_TRUE(growth.Decide(Spec(), round, 2, end).close);
  EXPECT_EQ(growth.Decide(Spec(), round, 1, end).until, kStart + absl::Seconds(30))
      << "the last call is longer";
}

TEST(Growth, KnowsWhoIsMissing) {
  Growth growth;
  EXPECT_EQ(growth.Missing(0), 0U);
  growth.Begin(2, 3);
  EXPECT_EQ(growth.Missing(1), 2U);
  EXPECT_EQ(growth.Missing(4), 0U);
}

}  // namespace
}  // namespace ddprun::rendezvous::growth_test
