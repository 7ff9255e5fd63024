#include "rendezvous/wire/training.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddprun::rendezvous {
namespace {

v1::NodeStatus* AddNode(uint32_t step_us, const std::vector<uint64_t>& steps, v1::JobStatus* job) {
  v1::NodeStatus* node = job->add_nodes();
  node->set_step_us(step_us);
  for (const uint64_t step : steps) {
    v1::WorkerStatus* worker = node->add_workers();
    worker->set_phase("train");
    worker->set_step(step);
  }
  return node;
}

// Returns "behind" or "" for each worker.
std::vector<std::string> Lags(v1::JobStatus job) {
  NoteLag(&job);
  std::vector<std::string> lags;
  for (const auto& node : job.nodes()) {
    for (const auto& worker : node.workers()) lags.push_back(worker.lag());
  }
  return lags;
}

// Ranks report once a second, so that within a second's steps nobody can be told apart.
TEST(NoteLag, BehindIsMoreThanTwoStepsAndASecondsWorth) {
  v1::JobStatus quick;
  AddNode(100'000, {500, 490, 489}, &quick);  // 10 steps/s
  EXPECT_EQ(Lags(quick), (std::vector<std::string>{"", "", "behind"}));
  v1::JobStatus slow;
  AddNode(2'000'000, {500, 498, 497}, &slow);
  EXPECT_EQ(Lags(slow), (std::vector<std::string>{"", "", "behind"}));
  NoteLag(&slow);
  EXPECT_EQ(slow.nodes(0).workers(2).behind(), 3U);
}

TEST(NoteLag, WhoWasHeardEarlierHasGoneOnSince) {
  v1::JobStatus job;
  AddNode(100'000, {500}, &job);
  v1::NodeStatus* earlier = AddNode(100'000, {480}, &job);
  EXPECT_EQ(Lags(job), (std::vector<std::string>{"", "behind"}));
  earlier->set_progress_age_ms(1500);
  EXPECT_EQ(Lags(job), (std::vector<std::string>{"", ""}));
  earlier->mutable_workers(0)->set_phase("checkpoint");  // takes no steps meanwhile
  EXPECT_EQ(Lags(job), (std::vector<std::string>{"", "behind"}));
}

// A silent node is behind, and no rank is compared with the step that it may have reached since.
TEST(NoteLag, ASilentNodeStandsWhereItWasHeard) {
  v1::JobStatus job;
  AddNode(100'000, {500}, &job);
  v1::NodeStatus* frozen = AddNode(100'000, {480}, &job);
  frozen->set_progress_age_ms(12'000);
  frozen->set_silent_ms(12'000);
  EXPECT_EQ(Lags(job), (std::vector<std::string>{"", "behind"}));
}

TEST(NoteLag, SlowIsATenthBelowTheMedianOfTheRanks) {
  v1::JobStatus job;
  AddNode(100'000, {5, 5, 5}, &job);
  AddNode(112'000, {5}, &job);
  AddNode(110'000, {5}, &job);
  NoteLag(&job);
  EXPECT_EQ(job.nodes(0).lag(), "");
  EXPECT_EQ(job.nodes(1).lag(), "slow");
  EXPECT_EQ(job.nodes(2).lag(), "");
}

TEST(NoteLag, SilentIsWorseThanSlow) {
  v1::JobStatus job;
  AddNode(100'000, {5, 5}, &job);
  AddNode(200'000, {5}, &job)->set_silent_ms(2499);
  NoteLag(&job);
  EXPECT_EQ(job.nodes(1).lag(), "slow");
  job.mutable_nodes(1)->set_silent_ms(2500);
  NoteLag(&job);
  EXPECT_EQ(job.nodes(1).lag(), "silent");
}

// With 5120 nodes each is probed every 5 s.
TEST(NoteLag, SilentFollowsThePauseBetweenTwoProbes) {
  v1::JobStatus job;
  for (int i = 0; i < 5120; ++i) AddNode(100'000, {5}, &job);
  job.mutable_nodes(1)->set_silent_ms(12'499);
  job.mutable_nodes(2)->set_silent_ms(12'500);
  NoteLag(&job);
  EXPECT_EQ(job.nodes(1).lag(), "");
  EXPECT_EQ(job.nodes(2).lag(), "silent");
}

TEST(NoteLag, WhoHoldsUpTheJobIsNamedAndNobodyTakesSteps) {
  v1::JobStatus job;
  AddNode(100'000, {500, 500}, &job);
  AddNode(100'000, {500, 470}, &job)->mutable_workers(1)->mutable_hold_up()->set_why("sleeps");
  EXPECT_EQ(Lags(job), (std::vector<std::string>{"", "", "", "holds up"}));
  NoteLag(&job);
  EXPECT_EQ(job.nodes(0).lag(), "");
  EXPECT_EQ(job.nodes(1).lag(), "holds up");
  EXPECT_EQ(job.nodes(0).step_us(), 0U);
  job.mutable_nodes(1)->set_silent_ms(2500);
  NoteLag(&job);
  EXPECT_EQ(job.nodes(1).lag(), "silent");
}

TEST(NoteLag, WhoMarksNothingIsNotBehind) {
  v1::JobStatus job;
  AddNode(0, {500, 0}, &job)->mutable_workers(1)->set_phase("unmarked");
  EXPECT_EQ(Lags(job), (std::vector<std::string>{"", ""}));
}

// What the service, or anybody, has put there.
TEST(NoteLag, OldNotesGo) {
  v1::JobStatus job;
  v1::NodeStatus* node = AddNode(100'000, {5}, &job);
  node->set_lag("slow");
  node->mutable_workers(0)->set_lag("behind");
  node->mutable_workers(0)->set_behind(7);
  NoteLag(&job);
  EXPECT_EQ(job.nodes(0).lag() + job.nodes(0).workers(0).lag(), "");
  EXPECT_EQ(job.nodes(0).workers(0).behind(), 0U);
}

// Steps are anybody's.
TEST(NoteLag, TheLargestStepIsNoOverflow) {
  v1::JobStatus job;
  AddNode(1, {UINT64_MAX, 0}, &job)->set_progress_age_ms(UINT64_MAX);
  NoteLag(&job);
  EXPECT_EQ(job.nodes(0).workers(0).lag(), "");
}

}  // namespace
}  // namespace ddprun::rendezvous
