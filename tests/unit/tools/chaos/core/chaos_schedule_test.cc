// When and where the faults of a plan come (docs/CHAOS.md).
#include "tools/chaos/core/chaos_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Instant At(double seconds) { return Instant::FromNanoseconds(static_cast<int64_t>(seconds * 1e9)); }

// A node with ranks 2 and 3 of 4, which run since second 10.
ChaosView SecondNode() {
  ChaosView view{.host = "host1",
                 .job_began = At(10),
                 .generation = 1,
                 .generation_began = At(10),
                 .begun = 1,
                 .group_rank = 1,
                 .base_rank = 2,
                 .world = 4,
                 .agent_runs = true};
  view.workers.assign(2, {.runs = true});
  return view;
}

void Mark(ChaosView* view, ProgressPhase phase, uint64_t step) {
  for (auto& worker : view->workers) {
    worker.phase = phase;
    worker.step = step;
  }
}

FaultPlan Killed(uint32_t rank, Trigger trigger) {
  return {.kind = FaultKind::kWorkerKilled, .victim = {.rank = rank}, .trigger = trigger};
}
Trigger AfterSeconds(double seconds) { return {.at = absl::Seconds(seconds)}; }

TEST(ChaosSchedule, ATimeAfterTheJobsBeginning) {
  ChaosSchedule schedule({.faults = {Killed(3, AfterSeconds(5))}});
  const ChaosView view = SecondNode();
  EXPECT_EQ(schedule.NextTime(At(10), view), At(15));
  EXPECT_THAT(schedule.Due(At(14.9), view), IsEmpty());
  EXPECT_THAT(schedule.Due(At(15), view),
              ElementsAre(Injection{.fault = 0, .occurrence = 0, .rank = 3}));
  EXPECT_THAT(schedule.Due(At(99), view), IsEmpty());
  EXPECT_TRUE(schedule.NextTime(At(15), view).is_infinite());
  EXPECT_THAT(schedule.NeverDue(), IsEmpty());
}

TEST(ChaosSchedule, NothingBeforeTheJobBegins) {
  ChaosSchedule schedule({.faults = {Killed(3, AfterSeconds(0))}});
  ChaosView view{.agent_runs = true};
  EXPECT_TRUE(schedule.NextTime(At(99), view).is_infinite());
  EXPECT_THAT(schedule.Due(At(99), view), IsEmpty());
  EXPECT_THAT(schedule.NeverDue(), ElementsAre(0));
}

TEST(ChaosSchedule, AnotherNodesVictimIsNotOurs) {
  ChaosSchedule schedule({.faults = {Killed(1, AfterSeconds(5))}});
  EXPECT_THAT(schedule.Due(At(15), SecondNode()), IsEmpty());
  // Over here too: were rank 1 to come here later, it would be hit twice.
  ChaosView moved = SecondNode();
  moved.base_rank = 0;
  EXPECT_THAT(schedule.Due(At(16), moved), IsEmpty());
  EXPECT_THAT(schedule.NeverDue(), IsEmpty());
}

TEST(ChaosSchedule, AVictimThatIsNowhereIsWaitedFor) {
  ChaosSchedule schedule({.faults = {Killed(5, AfterSeconds(5))}});
  ChaosView view = SecondNode();
  EXPECT_THAT(schedule.Due(At(15), view), IsEmpty());
  EXPECT_THAT(schedule.NeverDue(), ElementsAre(0));
  EXPECT_TRUE(schedule.NextTime(At(15), view).is_infinite()) << "it comes with an event";
  view.base_rank = 4;
  view.world = 6;
  EXPECT_THAT(schedule.Due(At(16), view),
              ElementsAre(Injection{.fault = 0, .occurrence = 0, .rank = 5}));
}

TEST(ChaosSchedule, NodesThatTheJobNeverHad) {
  const NodesSeen two = {.hosts = {"host0", "host1"}, .most = 2};
  EXPECT_FALSE(IsNoNode({.group_rank = 1}, two));
  EXPECT_TRUE(IsNoNode({.group_rank = 2}, two));
  EXPECT_FALSE(IsNoNode({.host = "host1"}, two));
  EXPECT_TRUE(IsNoNode({.host = "host2"}, two));
  EXPECT_FALSE(IsNoNode({.rank = 9}, two)) << "it is waited for";
  EXPECT_FALSE(IsNoNode({.random = true}, two));
  EXPECT_FALSE(IsNoNode({.host = "host2"}, {})) << "the service is elsewhere";
}

TEST(ChaosSchedule, AWorkerThatEndedIsWaitedFor) {
  ChaosSchedule schedule({.faults = {Killed(3, AfterSeconds(5))}});
  ChaosView view = SecondNode();
  view.workers[1].runs = false;
  EXPECT_THAT(schedule.Due(At(15), view), IsEmpty());
  view.generation = 0;
  EXPECT_THAT(schedule.Due(At(15), view), IsEmpty());
  EXPECT_EQ(schedule.Due(At(16), SecondNode()).size(), 1U);
}

TEST(ChaosSchedule, AgainAndAgain) {
  Trigger trigger = AfterSeconds(5);
  trigger.every = absl::Seconds(10);
  trigger.times = 2;
  ChaosSchedule schedule({.faults = {Killed(2, trigger)}});
  const ChaosView view = SecondNode();
  EXPECT_EQ(schedule.Due(At(40), view).size(), 1U);
  EXPECT_THAT(schedule.Due(At(40), view), IsEmpty()) << "those that were missed come not at once";
  EXPECT_EQ(schedule.NextTime(At(40), view), At(50));
  EXPECT_THAT(schedule.Due(At(50), view),
              ElementsAre(Injection{.fault = 0, .occurrence = 1, .rank = 2}));
  EXPECT_THAT(schedule.Due(At(60), view), IsEmpty());
}

TEST(ChaosSchedule, InEachGeneration) {
  Trigger trigger = AfterSeconds(1);
  trigger.each_generation = true;
  trigger.times = 2;
  ChaosSchedule schedule({.faults = {Killed(2, trigger)}});
  ChaosView view = SecondNode();
  EXPECT_EQ(schedule.Due(At(11), view).size(), 1U);
  EXPECT_THAT(schedule.Due(At(20), view), IsEmpty());
  view.begun = 2;
  view.generation_began = At(30);
  EXPECT_EQ(schedule.NextTime(At(30), view), At(31));
  EXPECT_EQ(schedule.Due(At(31), view).size(), 1U);
  view.begun = 3;
  EXPECT_THAT(schedule.Due(At(99), view), IsEmpty());
}

TEST(ChaosSchedule, AtAStepAndEverySoManySteps) {
  ChaosSchedule schedule(
      {.faults = {
           Killed(2, {.kind = Trigger::Kind::kStep, .step = 100, .every_steps = 50, .times = 2})}});
  ChaosView view = SecondNode();
  EXPECT_TRUE(schedule.WaitsForMarks());
  Mark(&view, ProgressPhase::kTrain, 99);
  EXPECT_THAT(schedule.Due(At(11), view), IsEmpty());
  Mark(&view, ProgressPhase::kTrain, 103);
  EXPECT_EQ(schedule.Due(At(11), view).size(), 1U);
  // The next generation begins with an earlier step: the same one doesn't come again.
  Mark(&view, ProgressPhase::kTrain, 110);
  EXPECT_THAT(schedule.Due(At(12), view), IsEmpty());
  Mark(&view, ProgressPhase::kTrain, 150);
  EXPECT_EQ(schedule.Due(At(13), view).size(), 1U);
  EXPECT_FALSE(schedule.WaitsForMarks());
}

TEST(ChaosSchedule, StepZeroNeedsAMark) {
  ChaosSchedule schedule({.faults = {Killed(2, {.kind = Trigger::Kind::kStep, .step = 0})}});
  ChaosView view = SecondNode();
  EXPECT_THAT(schedule.Due(At(11), view), IsEmpty());
  Mark(&view, ProgressPhase::kTrain, 0);
  EXPECT_EQ(schedule.Due(At(11), view).size(), 1U);
}

TEST(ChaosSchedule, Moments) {
  const struct {
    Moment moment;
    ProgressPhase phase;
    size_t due;
  } kCases[] = {
      {Moment::kStarting, ProgressPhase::kNone, 1},
      {Moment::kStarting, ProgressPhase::kStart, 1},
      {Moment::kStarting, ProgressPhase::kTrain, 0},
      {Moment::kRunning, ProgressPhase::kStart, 0},
      {Moment::kRunning, ProgressPhase::kTrain, 1},
      {Moment::kRunning, ProgressPhase::kIdle, 0},
      {Moment::kSaving, ProgressPhase::kTrain, 0},
      {Moment::kSaving, ProgressPhase::kCheckpoint, 1},
  };
  for (const auto& c : kCases) {
    const Trigger trigger{.kind = Trigger::Kind::kMoment, .moment = c.moment, .times = 2};
    ChaosSchedule schedule({.faults = {Killed(2, trigger)}});
    ChaosView view = SecondNode();
    Mark(&view, c.phase, 7);
    const int moment = static_cast<int>(c.moment);
    EXPECT_EQ(schedule.Due(At(11), view).size(), c.due) << moment;
    EXPECT_THAT(schedule.Due(At(12), view), IsEmpty()) << "once in a generation: " << moment;
    view.begun = 2;
    EXPECT_EQ(schedule.Due(At(13), view).size(), c.due) << moment;
  }
}

TEST(ChaosSchedule, NodesAndServices) {
  const struct {
    FaultKind kind;
    Victim victim;
    bool service_here;
    size_t due;
  } kCases[] = {
      {FaultKind::kAgentKilled, {.group_rank = 1}, false, 1},
      {FaultKind::kAgentKilled, {.group_rank = 0}, false, 0},
      {FaultKind::kAgentFrozen, {.host = "host1"}, false, 1},
      {FaultKind::kNetworkCut, {.host = "host"}, false, 0},
      {FaultKind::kServiceKilled, {}, true, 1},
      {FaultKind::kServiceKilled, {}, false, 0},
  };
  for (const auto& c : kCases) {
    ChaosSchedule schedule(
        {.faults = {{.kind = c.kind, .victim = c.victim, .trigger = AfterSeconds(0)}}});
    ChaosView view = SecondNode();
    view.service_here = c.service_here;
    EXPECT_EQ(schedule.Due(At(11), view).size(), c.due) << FaultName(c.kind);
  }
}

// Two nodes with the same plan: whichever node is drawn, exactly one of them injects.
TEST(ChaosSchedule, NodesAgreeOnARandomVictim) {
  std::vector<bool> hit(4);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const ChaosPlan plan{.seed = seed,
                         .faults = {{.kind = FaultKind::kWorkerKilled,
                                     .victim = {.random = true},
                                     .trigger = AfterSeconds(1)}}};
    ChaosSchedule first(plan);
    ChaosSchedule second(plan);
    ChaosView here = SecondNode();
    ChaosView there = SecondNode();
    there.base_rank = 0;
    const std::vector<Injection> ours = first.Due(At(11), here);
    const std::vector<Injection> theirs = second.Due(At(11), there);
    ASSERT_EQ(ours.size() + theirs.size(), 1U) << seed;
    hit.at((ours.empty() ? theirs : ours)[0].rank.value()) = true;
  }
  EXPECT_THAT(hit, ElementsAre(true, true, true, true));
}

}  // namespace
}  // namespace ddprun::launcher
