#include "base/event_loop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "tests/support/loop_until.h"

namespace ddprun {
namespace {

class EventLoopTest : public ::testing::Test {
 protected:
  // Runs until Stop(), or fails after 10 s.
  void Run() {
    Timer limit(loop_.get(), [this] {
      ADD_FAILURE() << "nothing stopped the loop";
      loop_->Stop();
    });
    limit.Arm(loop_->Now() + absl::Seconds(10));
    loop_->Run();
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
};

TEST_F(EventLoopTest, RunsPostedCallsOfOtherThreadsInOrder) {
  std::vector<int> calls;
  std::thread poster([&] {
    for (int i = 0; i < 1000; ++i) loop_->Post([&, i] { calls.push_back(i); });
    loop_->Post([&] {
      EXPECT_TRUE(loop_->OnLoop());
      loop_->Stop();
    });
    EXPECT_FALSE(loop_->OnLoop());
  });
  Run();
  poster.join();
  ASSERT_EQ(calls.size(), 1000U);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(calls[static_cast<size_t>(i)], i);
}

TEST_F(EventLoopTest, ACallMayPostAnother) {
  loop_->Post([&] { loop_->Post([&] { loop_->Stop(); }); });
  Run();
}

TEST_F(EventLoopTest, StopBeforeRunEndsItAtOnce) {
  loop_->Stop();
  Run();
  // Once only: the next run waits again.
  loop_->Post([&] { loop_->Stop(); });
  Run();
}

TEST_F(EventLoopTest, TimersAreDueInOrderAndNeverEarly) {
  std::vector<int> order;
  const Instant begin = loop_->Now();
  Timer late(loop_.get(), [&] {
    order.push_back(2);
    EXPECT_GE(loop_->Now() - begin, absl::Milliseconds(20));
    loop_->Stop();
  });
  Timer early(loop_.get(), [&] {
    order.push_back(1);
    EXPECT_GE(loop_->Now() - begin, absl::Milliseconds(5));
  });
  late.Arm(begin + absl::Milliseconds(20));
  early.Arm(begin + absl::Milliseconds(5));
  Run();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

// libuv's clock has whole milliseconds: what matters is where between two of them a timer is due.
TEST_F(EventLoopTest, NoTimerIsEarlyByAFraction) {
  std::vector<std::unique_ptr<Timer>> timers;
  size_t fired = 0;
  for (int i = 0; i < 40; ++i) {
    const Instant due = loop_->Now() + absl::Milliseconds(2) + i * absl::Microseconds(50);
    timers.push_back(std::make_unique<Timer>(loop_.get(), [&, due] {
      EXPECT_GE(loop_->Now(), due);
      if (++fired == timers.size()) loop_->Stop();
    }));
    timers.back()->Arm(due);
  }
  Run();
}

TEST_F(EventLoopTest, ATimerOfThePastIsDueAtOnce) {
  Timer timer(loop_.get(), [&] { loop_->Stop(); });
  timer.Arm(loop_->Now() - absl::Seconds(5));
  Run();
}

TEST_F(EventLoopTest, ArmingAgainReplacesAndDisarmingForgets) {
  int fired = 0;
  Timer replaced(loop_.get(), [&] { ++fired; });
  Timer forgotten(loop_.get(), [&] { ADD_FAILURE() << "it was disarmed"; });
  Timer never(loop_.get(), [&] { ADD_FAILURE() << "never is never"; });
  Timer end(loop_.get(), [&] { loop_->Stop(); });
  const Instant now = loop_->Now();
  replaced.Arm(now + absl::Milliseconds(1));
  replaced.Arm(now + absl::Milliseconds(2));
  forgotten.Arm(now + absl::Milliseconds(1));
  forgotten.Disarm();
  never.Arm(now + absl::Milliseconds(1));
  never.Arm(Instant::Infinite());
  end.Arm(now + absl::Milliseconds(10));
  Run();
  EXPECT_EQ(fired, 1);
}

TEST_F(EventLoopTest, HandlersMayDestroyTheirOwnHandle) {
  FdPair pipe = *MakePipe();
  std::optional<FdWatch> watch;
  std::optional<Timer> timer;
  timer.emplace(loop_.get(), [&] {
    timer.reset();
    loop_->Stop();
  });
  watch.emplace(loop_.get(), pipe.first.get(), [&] {
    watch.reset();
    timer->Arm(loop_->Now());
  });
  ASSERT_TRUE(WriteAll(pipe.second.get(), "x").ok());
  Run();
  EXPECT_FALSE(watch.has_value());
  EXPECT_FALSE(timer.has_value());
}

TEST_F(EventLoopTest, WatchesAreLevelTriggeredAndCanPause) {
  FdPair pipe = *MakePipe();
  int calls = 0;
  FdWatch watch(loop_.get(), pipe.first.get(), [&] {
    if (++calls == 3) loop_->Stop();  // nothing is read, so it stays readable
  });
  ASSERT_TRUE(WriteAll(pipe.second.get(), "x").ok());
  Run();
  EXPECT_EQ(calls, 3);

  watch.Pause();
  Timer end(loop_.get(), [&] { loop_->Stop(); });
  end.Arm(loop_->Now() + absl::Milliseconds(5));
  Run();
  EXPECT_EQ(calls, 3);

  watch.Resume();
  calls = 0;
  Run();
  EXPECT_EQ(calls, 3);
}

TEST_F(EventLoopTest, TheEndOfFileIsReadable) {
  FdPair pipe = *MakePipe();
  FdWatch watch(loop_.get(), pipe.first.get(), [&] { loop_->Stop(); });
  pipe.second.Reset();
  Run();
}

TEST_F(EventLoopTest, WritableMeansThatThereIsRoom) {
  FdPair pipe = *MakePipe();
  ASSERT_TRUE(SetNonBlocking(pipe.second.get(), true).ok());
  const std::string block(4096, 'x');
  while (write(pipe.second.get(), block.data(), block.size()) > 0) {
  }
  bool drained = false;
  FdWatch watch(loop_.get(), pipe.second.get(), FdWatch::Writable{}, [&] {
    EXPECT_TRUE(drained);
    loop_->Stop();
  });
  loop_->Post([&] {
    std::string all(1 << 16, '\0');
    drained = read(pipe.first.get(), all.data(), all.size()) > 0;
  });
  Run();
}

TEST_F(EventLoopTest, SignalsArriveOnTheLoop) {
  SignalWatch watch(loop_.get(), SIGUSR1, [&] {
    EXPECT_TRUE(loop_->OnLoop());
    loop_->Stop();
  });
  raise(SIGUSR1);
  Run();
}

TEST_F(EventLoopTest, NowIsTheMonotonicClock) {
  const Instant before = MonotonicNow();
  const Instant now = loop_->Now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, MonotonicNow());
}

TEST_F(EventLoopTest, LoopUntilDoesNotWaitOnceATimerHasMadeItTrue) {
  bool due = false;
  Timer timer(loop_.get(), [&] { due = true; });
  timer.Arm(loop_->Now() - absl::Seconds(1));  // its handler runs before the first wait
  const Instant begin = loop_->Now();
  EXPECT_TRUE(LoopUntil(
      loop_.get(), [&] { return due; }, absl::Seconds(20)));
  EXPECT_LT(loop_->Now() - begin, absl::Seconds(20));
}

TEST_F(EventLoopTest, LoopUntilSeesWhatAHandlerBeganToWatch) {
  FdPair pipe = *MakePipe();
  ASSERT_EQ(write(pipe.second.get(), "x", 1), 1);
  bool ready = false;
  std::unique_ptr<FdWatch> watch;
  loop_->Post([&] {
    watch = std::make_unique<FdWatch>(loop_.get(), pipe.first.get(), [&] { ready = true; });
  });
  const Instant begin = loop_->Now();
  EXPECT_TRUE(LoopUntil(
      loop_.get(), [&] { return ready; }, absl::Seconds(20)));
  EXPECT_LT(loop_->Now() - begin, absl::Seconds(20));
}

}  // namespace
}  // namespace ddprun
