// What an agent does while it waits for others: before the first generation, and after its own
// workers ended well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/core/supervisor/supervisor.h"
#include "tests/unit/launcher/core/supervisor_bench.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Generation;
using ::testing::HasSubstr;
using ::testing::Not;

SupervisorConfig WithBarrier(absl::Duration timeout) {
  SupervisorConfig config = Bench::Config(1);
  config.exit_barrier.timeout = timeout;
  return config;
}

// Lets the node's only worker end well.
void Succeed(Bench* bench) {
  bench->Join();
  bench->Assign(1);
  bench->End(1, 0, 0);
  bench->Empty(1);
  ASSERT_TRUE(bench->Sent<rendezvous::GroupSucceeded>().has_value());
}

TEST(ExitBarrier, ANodeThatIsDoneLeavesInTheEnd) {
  Bench bench(WithBarrier(absl::Seconds(2)));
  Succeed(&bench);
  bench.Advance(absl::Milliseconds(1999));
  EXPECT_FALSE(bench.Sent<rendezvous::Leave>().has_value());
  bench.Advance(absl::Milliseconds(1));
  const auto leave = bench.Sent<rendezvous::Leave>();
  ASSERT_TRUE(leave.has_value());
  EXPECT_FALSE(leave->end_job);
  EXPECT_TRUE(bench.Effect<FinishStream>().has_value());
  bench.Feed(ServiceStreamClosed{absl::OkStatus(), false});
  ASSERT_TRUE(bench.exit_.has_value());
  EXPECT_EQ(bench.exit_->status, 0);
  EXPECT_THAT(bench.told_, HasSubstr("--exit_barrier_timeout 2s"));
}

TEST(ExitBarrier, WithoutATimeItWaits) {
  Bench bench(Bench::Config(1));
  Succeed(&bench);
  bench.Advance(absl::Milliseconds(4900));  // below the lease
  EXPECT_FALSE(bench.Sent<rendezvous::Leave>().has_value());
}

TEST(ExitBarrier, TheNodeThatOthersNeedStays) {
  Bench bench(WithBarrier(absl::Seconds(2)), /*hosts=*/true);
  Succeed(&bench);
  bench.Advance(absl::Seconds(3));
  EXPECT_FALSE(bench.Sent<rendezvous::Leave>().has_value());
}

TEST(ExitBarrier, ARestartElsewhereEndsTheWait) {
  Bench bench(WithBarrier(absl::Seconds(2)));
  Succeed(&bench);
  bench.FeedMessage(rendezvous::StopWorkers{Generation(1), "rank 3 failed"});
  bench.Advance(absl::Seconds(3));
  EXPECT_FALSE(bench.exit_.has_value());
  bench.Assign(2);
  EXPECT_TRUE(bench.Effect<SpawnGroup>().has_value());
}

class Loneliness : public ::testing::Test {
 protected:
  // A node of a job of two at an endpoint.
  explicit Loneliness(bool is_loopback = true) {
    SupervisorConfig config = Bench::Config(1);
    config.job.nodes_min = config.job.nodes_max = 2;
    config.endpoint.text = "localhost:29400";
    bench_.emplace(config);
    bench_->Feed(EndpointFound{.node_address = "localhost", .is_loopback = is_loopback});
    bench_->Join();
  }

  void Wait(const char* reason, uint32_t present) {
    bench_->FeedMessage(rendezvous::Standby{.reason = reason, .nodes_present = present});
  }

  std::optional<Bench> bench_;
};

TEST_F(Loneliness, IsExplainedOnceAfterTwoSeconds) {
  Wait("1 of 2 nodes have joined", 1);
  bench_->Advance(absl::Milliseconds(1900));
  EXPECT_THAT(bench_->told_, Not(HasSubstr("loopback")));
  bench_->Advance(absl::Milliseconds(100));
  EXPECT_THAT(bench_->told_, HasSubstr("localhost:29400 is this machine's loopback"));
  bench_->told_.clear();
  Wait("1 of 2 nodes have joined still", 1);
  bench_->Advance(absl::Milliseconds(2500));
  EXPECT_THAT(bench_->told_, Not(HasSubstr("loopback")));
}

TEST_F(Loneliness, IsNotExplainedWhenOthersCome) {
  Wait("1 of 3 nodes have joined", 1);
  bench_->Advance(absl::Seconds(1));
  Wait("2 of 3 nodes have joined", 2);
  bench_->Advance(absl::Seconds(3));
  EXPECT_THAT(bench_->told_, Not(HasSubstr("loopback")));
}

TEST_F(Loneliness, IsNotExplainedWhenOthersWereThere) {
  Wait("2 of 3 nodes have joined", 2);
  Wait("1 of 3 nodes have joined", 1);
  bench_->Advance(absl::Seconds(3));
  EXPECT_THAT(bench_->told_, Not(HasSubstr("no other node has come")));
}

class LonelinessElsewhere : public Loneliness {
 protected:
  LonelinessElsewhere() : Loneliness(/*is_loopback=*/false) {}
};

TEST_F(LonelinessElsewhere, HasOtherReasons) {
  Wait("1 of 2 nodes have joined", 1);
  bench_->Advance(absl::Seconds(3));
  EXPECT_THAT(bench_->told_, Not(HasSubstr("loopback")));
}

}  // namespace
}  // namespace ddprun::launcher
