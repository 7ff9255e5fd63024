#include "rendezvous/core/generation/preemption.h"

#include <gtest/gtest.h>

namespace ddprun::rendezvous::preemption_test {
namespace {

using Action = Preemption::Action;
using Members = std::optional<std::set<uint32_t>>;

Preempt Reclaimed() { return {.reason = "SIGUSR2: reclaimed", .deadline = absl::Seconds(40)}; }

StopPrepared At(uint32_t round, uint64_t step) {
  return {.round = round, .look = {.heeds = true, .below = true, .highest = step}};
}

JobSpec AtLeast(uint32_t nodes) {
  JobSpec spec;
  spec.nodes_min = spec.nodes_max = nodes;
  return spec;
}

TEST(Preemption, AgreesOnAStepAndThenCommits) {
  Preemption preemption;
  preemption.Open();
  EXPECT_EQ(preemption.Announce(Instant(), "hosta", Reclaimed(), Members({0, 1})), Action::kAsk);
  EXPECT_EQ(preemption.why(), "hosta is preempted: SIGUSR2: reclaimed");
  EXPECT_EQ(preemption.trigger(), "preempted");
  EXPECT_TRUE(preemption.awaits(1));
  EXPECT_EQ(preemption.Add(Instant(), 0, At(1, 7)), Action::kNone);
  EXPECT_EQ(preemption.Add(Instant(), 1, At(1, 5)), Action::kAsk);
  EXPECT_EQ(preemption.Question(Generation(3)).generation, Generation(3));
  EXPECT_EQ(preemption.Question(Generation(3)).step, 8U);
  EXPECT_EQ(preemption.Add(Instant(), 0, At(2, 7)), Action::kNone);
  EXPECT_EQ(preemption.Add(Instant(), 1, At(2, 7)), Action::kCommit);
  EXPECT_TRUE(preemption.committed());
  EXPECT_EQ(preemption.BrokenInvariant(), "");
  preemption.BeginClosing();
  EXPECT_TRUE(preemption.committed()) << "it is what ends the generation";
  EXPECT_TRUE(preemption.Abandon());
  EXPECT_FALSE(preemption.Abandon()) << "there is nothing left to abandon";
}

TEST(Preemption, AnythingElseThatEndsTheGenerationIsQuicker) {
  Preemption preemption;
  preemption.Announce(Instant(), "hosta", Reclaimed(), Members({0}));
  preemption.BeginClosing();
  EXPECT_FALSE(preemption.agreeing());
  EXPECT_FALSE(preemption.Abandon());
  EXPECT_TRUE(preemption.deadline().is_infinite());
}

TEST(Preemption, ASecondOneHastensTheFirst) {
  Preemption preemption;
  preemption.Announce(Instant(), "hosta", Reclaimed(), Members({0, 1}));
  const Instant before = preemption.deadline();
  Preempt sooner = Reclaimed();
  sooner.deadline = absl::Seconds(4);
  EXPECT_EQ(preemption.Announce(Instant(), "hostb", sooner, Members({0, 1})), Action::kNone);
  EXPECT_LT(preemption.deadline(), before);
  EXPECT_EQ(preemption.why(), "hosta is preempted: SIGUSR2: reclaimed");
}

TEST(Preemption, WithoutARunningGenerationThereIsNoStep) {
  Preemption preemption;
  EXPECT_EQ(preemption.Announce(Instant(), "hosta", Reclaimed(), std::nullopt), Action::kNone);
  EXPECT_FALSE(preemption.agreeing());
  EXPECT_EQ(preemption.EndsJob(AtLeast(2), 1),
            "hosta is preempted: SIGUSR2: reclaimed; 1 node is left of at least 2");
}

TEST(Preemption, EndsTheJobThatCantGoOn) {
  Preemption preemption;
  EXPECT_EQ(preemption.EndsJob(AtLeast(2), 0), std::nullopt) << "nobody is taken away";
  preemption.NoteLeft("node a left");
  preemption.NoteLeft("node b left");
  EXPECT_EQ(preemption.EndsJob(AtLeast(2), 2), std::nullopt);
  EXPECT_EQ(preemption.EndsJob(AtLeast(3), 2), "node a left; 2 nodes are left of at least 3");
  preemption.Open();
  EXPECT_EQ(preemption.EndsJob(AtLeast(3), 0), std::nullopt) << "that was another generation";
}

TEST(Preemption, TheServicesHostEndsTheJobHoweverManyAreLeft) {
  Preemption preemption;
  Preempt host = Reclaimed();
  host.ends_job = true;
  preemption.Announce(Instant(), "hosta", host, Members({0, 1}));
  EXPECT_EQ(preemption.EndsJob(AtLeast(1), 5), "hosta is preempted: SIGUSR2: reclaimed");
}

TEST(Preemption, ADrainStopsAtAStepAndEndsNoJob) {
  Preemption preemption;
  const Preempt drained{.reason = "drained", .deadline = absl::Seconds(40), .drained = true};
  EXPECT_EQ(preemption.Announce(Instant(), "hosta", drained, Members({0})), Action::kAsk);
  EXPECT_EQ(preemption.why(), "hosta is drained");
  EXPECT_EQ(preemption.trigger(), "drained");
  EXPECT_EQ(preemption.EndsJob(AtLeast(2), 0), std::nullopt);
}

}  // namespace
}  // namespace ddprun::rendezvous::preemption_test
