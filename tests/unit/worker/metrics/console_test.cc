#include "worker/metrics/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/fd.h"

namespace ddprun::worker {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr Instant kStart = Instant::FromNanoseconds(1'000'000'000'000);

ConsoleFacts FactsAt(int64_t step) {
  return {.step = step,
          .total_steps = 7375,
          .elapsed = absl::Seconds(62),
          .left = absl::Seconds(85),
          .values = {{"loss", 0.12345},
                     {"learning_rate", 3e-4},
                     {"samples_per_second", 4012.3},
                     {"step_seconds", 0.0251},
                     {"data_seconds", 0.0003},
                     {"gradient_norm", 1.25},
                     {"host_memory_bytes", 180.0 * 1024 * 1024},
                     {"communication_overlap", 0.83}}};
}

TEST(ClockTextTest, GrowsWithTheTime) {
  EXPECT_EQ(ClockText(absl::Seconds(7.9)), "0:07");
  EXPECT_EQ(ClockText(absl::Minutes(12.5)), "12:30");
  EXPECT_EQ(ClockText(absl::Seconds(3723)), "1:02:03");
  EXPECT_EQ(ClockText(absl::Hours(48) + absl::Seconds(3723)), "2d 01:02:03");
  EXPECT_EQ(ClockText(-absl::Seconds(3)), "0:00");
}

TEST(BytesTextTest, TakesTheUnitThatFits) {
  EXPECT_EQ(BytesText(512), "512 B");
  EXPECT_EQ(BytesText(180.0 * 1024 * 1024), "180 MiB");
  EXPECT_EQ(BytesText(1.5 * 1024 * 1024 * 1024), "1.5 GiB");
}

TEST(ConsoleLineTest, SaysEverything) {
  EXPECT_EQ(ConsoleLine(FactsAt(3100)),
            "step 3100/7375 (42%)  loss 0.1235  lr 0.0003  4012 samples/s  step 25.1 ms (data 300 "
            "us)  grad 1.25  memory 180 MiB  overlap 83%  1:02 gone, 1:25 left");
}

TEST(ConsoleLineTest, LeavesOutWhatIsUnknown) {
  EXPECT_EQ(ConsoleLine({.step = 5, .elapsed = absl::Seconds(1)}), "step 5  0:01 gone");
}

TEST(ProgressBarTest, FillsTheTerminal) {
  EXPECT_EQ(ProgressBar(FactsAt(3100), 80),
            " 42% [========>           ] 3100/7375  1:02<1:25  loss 0.1235  lr 0.0003");
  EXPECT_THAT(ProgressBar(FactsAt(3100), 200), EndsWith("overlap 83%"));
  EXPECT_EQ(ProgressBar(FactsAt(3100), 10), " 42% [====");
  EXPECT_THAT(ProgressBar(FactsAt(7375), 80), StartsWith("100% [====================] 7375/7375"));
  EXPECT_EQ(ProgressBar({.step = 5, .elapsed = absl::Seconds(1)}, 80), "5 steps  0:01");
}

// A pipe, and what was written to it.
class ConsoleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<FdPair> pipe = MakePipe();
    ASSERT_TRUE(pipe.ok());
    pipe_ = *std::move(pipe);
    ASSERT_TRUE(SetNonBlocking(pipe_.first.get(), true).ok());
  }
  std::string Read() const {
    std::array<char, 4096> bytes;
    const ssize_t count = read(pipe_.first.get(), bytes.data(), bytes.size());
    return count > 0 ? std::string(bytes.data(), static_cast<size_t>(count)) : "";
  }

  FdPair pipe_;
};

TEST_F(ConsoleTest, LinesComeAtIntervalsAndAtTheEnd) {
  Console console(ConsoleKind::kLines, pipe_.second.get(), absl::Seconds(10));
  console.Step(FactsAt(1), false, kStart);
  EXPECT_EQ(Read(), "");
  console.Step(FactsAt(10), true, kStart + absl::Seconds(1));
  EXPECT_THAT(Read(), StartsWith("step 10/7375"));
  console.Step(FactsAt(20), true, kStart + absl::Seconds(10));
  EXPECT_EQ(Read(), "");
  console.Step(FactsAt(30), true, kStart + absl::Seconds(11));
  EXPECT_THAT(Read(), StartsWith("step 30/7375"));
  console.Step(FactsAt(7375), true, kStart + absl::Seconds(12));
  EXPECT_THAT(Read(), EndsWith("1:25 left\n"));
}

TEST_F(ConsoleTest, TheBarMovesTenTimesASecondAndEndsItsLine) {
  {
    Console console(ConsoleKind::kProgressBar, pipe_.second.get(), absl::Seconds(10));
    console.Step(FactsAt(1), false, kStart);
    EXPECT_THAT(Read(), StartsWith("\r  0% [>"));
    console.Step(FactsAt(2), true, kStart + absl::Milliseconds(99));
    EXPECT_EQ(Read(), "");
    console.Step(FactsAt(3), false, kStart + absl::Milliseconds(100));
    EXPECT_THAT(Read(), Not(HasSubstr("\n")));
  }
  EXPECT_EQ(Read(), "\n");
}

TEST_F(ConsoleTest, TheLastStepEndsTheBar) {
  {
    Console console(ConsoleKind::kProgressBar, pipe_.second.get(), absl::Seconds(10));
    console.Step(FactsAt(7374), false, kStart);
    console.Step(FactsAt(7375), false, kStart);
    EXPECT_THAT(Read(), EndsWith("\n"));
  }
  EXPECT_EQ(Read(), "");
}

TEST_F(ConsoleTest, SaysNothingWhenToldSo) {
  Console console(ConsoleKind::kNone, pipe_.second.get(), absl::ZeroDuration());
  console.Step(FactsAt(7375), true, kStart);
  EXPECT_EQ(Read(), "");
}

TEST_F(ConsoleTest, ATerminalHasABarOfItsWidth) {
  int master = -1;
  int slave = -1;
  winsize size = {.ws_row = 24, .ws_col = 60};
  ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, &size), 0);
  const Fd reader(master);
  const Fd terminal(slave);
  EXPECT_EQ(ConsoleKindFor(terminal.get()), ConsoleKind::kProgressBar);
  EXPECT_EQ(ConsoleKindFor(pipe_.second.get()), ConsoleKind::kLines);
  Console console(ConsoleKind::kProgressBar, terminal.get(), absl::Seconds(10));
  console.Step(FactsAt(3100), false, kStart);
  std::array<char, 4096> bytes;
  const ssize_t count = read(reader.get(), bytes.data(), bytes.size());
  ASSERT_GT(count, 0);
  EXPECT_EQ(std::string(bytes.data(), static_cast<size_t>(count)),
            "\r" + ProgressBar(FactsAt(3100), 59) + "\x1b[K");
}

}  // namespace
}  // namespace ddprun::worker
