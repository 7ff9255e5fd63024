// What holds while an agent ends, whatever it ends of.
#include <gtest/gtest.h>

#include "tests/unit/launcher/core/supervisor_bench.h"

namespace ddprun::launcher {
namespace {

// The time of the exit barrier is over while the service still ends the stream.
TEST(SupervisorEnding, AVerdictHoldsWhateverWasWaitedForBefore) {
  SupervisorConfig config = Bench::Config(1);
  config.exit_barrier.timeout = absl::Seconds(2);
  Bench bench(config);
  bench.Join();
  bench.Assign(1);
  bench.End(1, 0, 0);
  bench.Empty(1);
  bench.Advance(absl::Seconds(1));
  bench.FeedMessage(rendezvous::Verdict{.outcome = rendezvous::Outcome::kFailed, .reason = "x"});
  EXPECT_TRUE(bench.Effect<FinishStream>().has_value());
  bench.Advance(absl::Seconds(2));
  EXPECT_FALSE(bench.Sent<rendezvous::Leave>().has_value());
  ASSERT_TRUE(bench.exit_.has_value());
  EXPECT_EQ(bench.exit_->status, 1);
  ASSERT_TRUE(bench.exit_->verdict.has_value());
  EXPECT_EQ(bench.exit_->verdict->reason, "x");
}

// Two deadlines fall together: the end of the node's time, and the notice that the service doesn't
// answer.
TEST(SupervisorEnding, NothingComesAfterExit) {
  SupervisorConfig config = Bench::Config(1);
  config.preemption = {.deadline = absl::Seconds(20), .after = absl::Seconds(21)};
  Bench bench(config);
  bench.Advance(absl::Seconds(1));
  ASSERT_TRUE(bench.exit_.has_value());
  EXPECT_EQ(bench.exit_->status, 75);
  ASSERT_FALSE(bench.effects_.empty());
  EXPECT_TRUE(std::holds_alternative<Exit>(bench.effects_.back()));
}

}  // namespace
}  // namespace ddprun::launcher
