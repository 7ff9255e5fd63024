// How a stop step reaches the workers of a node and comes back, through their pages (R14).
#include "launcher/agent/stop_steps.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/progress_page.h"
#include "tests/support/loop_until.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Generation;

class StopStepsTest : public ::testing::Test {
 protected:
  StopStepsTest() : loop_(*EventLoop::Create()) {
    plan_.worker_count = 2;
    HangMonitor::Hooks hooks{.found = [](const ProgressFound&) {},
                             .end_worker = [](Generation, const WorkerEnd&) {},
                             .record = [](const auto&, const auto&) {}};
    monitor_ = std::make_unique<HangMonitor>(loop_.get(), &plan_, std::move(hooks));
    rendezvous::Assignment assignment;
    assignment.generation = Generation(1);
    monitor_->Begin(assignment, {});
    steps_ = std::make_unique<StopSteps>(loop_.get(), monitor_.get(),
                                         [this](const StopStepLooked& l) { looked_.push_back(l); });
    steps_->Begin();
    for (uint32_t i = 0; i < 2; ++i) {
      monitor_->OnStarted(i, getpid());
      pages_.emplace_back(open(monitor_->page_path(i).c_str(), O_RDWR | O_CLOEXEC));
      AtStep(i, 17);
    }
  }

  void Put(uint32_t rank, size_t offset, uint64_t value) {
    EXPECT_EQ(pwrite(pages_[rank].get(), &value, sizeof(value), static_cast<off_t>(offset)), 8);
  }
  // Marks a step as a worker does that asks for stop steps.
  void AtStep(uint32_t rank, uint64_t step, bool waits = false) {
    Put(rank, kProgressWordOffset, PackProgress(ProgressPhase::kTrain, step));
    Put(rank, kProgressAnswerOffset, waits ? step << 1 | 1 : 1);
  }
  void Ask(uint32_t round, uint64_t step) {
    steps_->Do(LookAtStopStep{Generation(1), round, step});
  }
  const StopStepLooked& Answer(size_t count = 1) {
    EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return looked_.size() >= count; }));
    return looked_.back();
  }

  std::unique_ptr<EventLoop> loop_;
  LaunchPlan plan_;
  std::unique_ptr<HangMonitor> monitor_;
  std::vector<Fd> pages_;
  std::vector<StopStepLooked> looked_;
  std::unique_ptr<StopSteps> steps_;
};

TEST_F(StopStepsTest, SaysAtOnceHowFarTheyAre) {
  AtStep(1, 18);
  Ask(1, 0);
  ASSERT_EQ(looked_.size(), 1U);
  EXPECT_TRUE(looked_[0].look.heeds);
  EXPECT_EQ(looked_[0].look.highest, 18U);
}

TEST_F(StopStepsTest, AStepThatWasPreparedIsTheLeastThatCanBeProposed) {
  Ask(1, 20);
  Answer();
  Ask(2, 0);  // of another service, which knows nothing of that
  EXPECT_EQ(Answer(2).look.highest, 19U);
  AtStep(1, 20, /*waits=*/true);
  Ask(3, 0);
  EXPECT_EQ(Answer(3).look.highest, 20U);
}

TEST_F(StopStepsTest, OneThatDoesNotAskIsEnough) {
  Put(1, kProgressAnswerOffset, 0);
  Ask(1, 0);
  EXPECT_FALSE(looked_.at(0).look.heeds);
  monitor_->OnEnded(1, false);
  Ask(2, 0);
  EXPECT_TRUE(looked_.at(1).look.heeds) << "a worker that has ended need not ask";
}

TEST_F(StopStepsTest, BelowIsBelievedWhenItIsSeenTwice) {
  Ask(2, 19);
  EXPECT_TRUE(looked_.empty());
  EXPECT_TRUE(Answer().look.below);
  Ask(3, 21);
  EXPECT_EQ(looked_.size(), 1U);
  AtStep(1, 21);  // it looked before we wrote, and its mark came late
  EXPECT_FALSE(Answer(2).look.below);
  AtStep(1, 21, /*waits=*/true);
  Ask(4, 21);
  EXPECT_TRUE(Answer(3).look.below) << "it waits at the very step";
}

// SIGTERM comes while a round is being answered.
TEST_F(StopStepsTest, ALookBetweenTheTwoOfARoundDoesNotTakeItsAnswer) {
  Ask(2, 19);
  Ask(0, 0);
  ASSERT_EQ(looked_.size(), 1U);
  EXPECT_EQ(looked_[0].round, 0U);
  EXPECT_TRUE(looked_[0].look.heeds);
  EXPECT_EQ(Answer(2).round, 2U);
  EXPECT_TRUE(looked_[1].look.below);
}

TEST_F(StopStepsTest, AllHaveStoppedWhenAllAreAtTheCommittedStep) {
  Ask(2, 19);
  Answer();
  steps_->Do(CommitStopStep{Generation(1), 19});
  EXPECT_EQ(steps_->StoppedAt(), 0U);
  AtStep(0, 19, /*waits=*/true);
  Ask(0, 0);
  EXPECT_FALSE(looked_.back().all_stopped);
  AtStep(1, 19, /*waits=*/true);
  Ask(0, 0);
  EXPECT_TRUE(looked_.back().all_stopped);
  EXPECT_EQ(steps_->StoppedAt(), 19U);
}

}  // namespace
}  // namespace ddprun::launcher
