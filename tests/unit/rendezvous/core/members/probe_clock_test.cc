#include "rendezvous/core/members/lease_table.h"

#include <gtest/gtest.h>

namespace ddprun::rendezvous::probe_clock_test {
namespace {

constexpr absl::Duration kLease = absl::Seconds(5);

TEST(ProbeClock, TicksFromTheFirstNodeToTheLast) {
  ProbeClock clock;
  EXPECT_FALSE(clock.ticks());
  clock.Wake(Instant(), kLease);
  const Instant first = Instant() + absl::Seconds(1);
  EXPECT_EQ(clock.due(), first);
  clock.Wake(Instant() + absl::Milliseconds(500), kLease);
  EXPECT_EQ(clock.due(), first) << "another node doesn't put off the probe";
  clock.Tick(first, kLease);
  EXPECT_EQ(clock.due(), first + absl::Seconds(1));
  clock.Rest();
  EXPECT_FALSE(clock.ticks());
  EXPECT_TRUE(clock.due().is_infinite());
}

TEST(ProbeClock, KnowsWhenAProbeWasSent) {
  ProbeClock clock;
  clock.Wake(Instant(), kLease);
  const Instant due = clock.due();
  const uint64_t nonce = clock.Tick(due, kLease);
  const Instant later = due + absl::Milliseconds(3);
  const uint64_t single = clock.Ask(later);
  EXPECT_EQ(clock.SentAt(nonce), due);
  EXPECT_EQ(clock.SentAt(single), later);
  EXPECT_EQ(clock.SentAt(single + 1), std::nullopt);
  EXPECT_EQ(clock.due(), due + absl::Seconds(1)) << "a question to one node is no tick";
}

TEST(ProbePace, FollowsTheNumberOfNodesWhereThereAreMany) {
  EXPECT_EQ(ProbePace(kLease, 1024).interval, absl::Seconds(1));
  EXPECT_EQ(ProbePace(kLease, 1024).lease, kLease) << "as ever";
  EXPECT_EQ(ProbePace(kLease, 4096).interval, absl::Seconds(4));
  EXPECT_EQ(ProbePace(kLease, 4096).lease, absl::Seconds(20));
  EXPECT_EQ(ProbePace(absl::Seconds(60), 4096).lease, absl::Seconds(60)) << "it is long enough";
}

// While thousands join, a service has too much to do to hear each of them within a short lease.
TEST(ProbeClock, NodesThatAreAwaitedCountFromTheBeginning) {
  ProbeClock clock;
  EXPECT_EQ(clock.pace(kLease, 4096).lease, absl::Seconds(20)) << "of the first that joins";
  clock.Wake(Instant(), kLease, 4096);
  EXPECT_EQ(clock.due(), Instant() + absl::Seconds(4));
  clock.Tick(clock.due(), kLease, 1, 4096);
  EXPECT_EQ(clock.pace(kLease, 4096).interval, absl::Seconds(4));
  clock.Tick(clock.due(), kLease, 8192, 4096);
  EXPECT_EQ(clock.pace(kLease, 4096).interval, absl::Seconds(5)) << "a quarter of the lease";
}

TEST(ProbeClock, KeepsFourProbesInEachLeaseWhenNodesCome) {
  ProbeClock clock;
  clock.Wake(Instant(), kLease);
  for (int tick = 0; tick < 20; ++tick) {
    const absl::Duration lease = clock.pace(kLease).lease;  // for nodes that renew now
    const Instant now = clock.due();
    clock.Tick(now, kLease, 16384);
    EXPECT_LE(clock.due() - now, lease / 4) << tick;
  }
  EXPECT_EQ(clock.pace(kLease).interval, absl::Seconds(16));
  EXPECT_EQ(clock.pace(kLease).lease, absl::Seconds(80)) << "below the service loss timeout";
  clock.Tick(clock.due(), kLease, 2);
  EXPECT_EQ(clock.pace(kLease).interval, absl::Seconds(1)) << "as soon as few are left";
}

TEST(ProbeClockDeath, NoTickBeforeItsTime) {
  ProbeClock clock;
  EXPECT_DEATH(clock.Tick(Instant(), kLease), "before its time");
  clock.Wake(Instant(), kLease);
  EXPECT_DEATH(clock.Tick(Instant(), kLease), "before its time");
}

}  // namespace
}  // namespace ddprun::rendezvous::probe_clock_test
