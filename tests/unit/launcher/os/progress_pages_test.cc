#include "launcher/os/progress_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "tests/support/loop_until.h"

namespace ddprun::launcher {
namespace {

class ProgressPagesTest : public ::testing::Test {
 protected:
  ProgressPagesTest() : loop_(*EventLoop::Create()) {
    pages_ = *ProgressPages::Create(loop_.get(), 42, 2, [this] { ++opened_; });
  }
  // Opens the page as a worker does.
  Fd Open(uint32_t local_rank) { return Fd(open(pages_->path(local_rank).c_str(), O_RDWR)); }

  std::unique_ptr<EventLoop> loop_;
  int opened_ = 0;
  std::unique_ptr<ProgressPages> pages_;
};

TEST_F(ProgressPagesTest, AWorkerReadsWhoseItIsAndWritesItsWord) {
  const Fd page = Open(1);
  ASSERT_TRUE(page.valid());
  char head[24];
  ASSERT_EQ(pread(page.get(), head, sizeof(head), 0), 24);
  EXPECT_EQ(std::string(head, 8), "DDPRUNPG");
  EXPECT_EQ(head[8], 1);
  EXPECT_EQ(head[16], 42);
  EXPECT_EQ(pages_->Words(), (std::vector<uint64_t>{0, 0}));
  const uint64_t word = PackProgress(ProgressPhase::kTrain, 7);
  ASSERT_EQ(pwrite(page.get(), &word, sizeof(word), 64), 8);
  EXPECT_EQ(pages_->Words(), (std::vector<uint64_t>{0, word}));
}

TEST_F(ProgressPagesTest, ReportsOfTheTrainingArePutTogether) {
  const Fd pages[] = {Open(0), Open(1)};
  const auto report = [&](int rank, uint64_t told, double loss, double rate) {
    ASSERT_EQ(pwrite(pages[rank].get(), &loss, sizeof(loss), 448), 8);
    ASSERT_EQ(pwrite(pages[rank].get(), &rate, sizeof(rate), 456), 8);
    ASSERT_EQ(pwrite(pages[rank].get(), &told, sizeof(told), 464), 8);
  };
  EXPECT_EQ(pages_->Training(), TrainingReport());
  report(1, 3, 2.0, 100);
  EXPECT_EQ(pages_->Training(),
            (TrainingReport{.loss = 2.0, .loss_workers = 1, .samples_per_second = 100}));
  report(0, 3, 1.0, 50);
  EXPECT_EQ(pages_->Training(),
            (TrainingReport{.loss = 1.5, .loss_workers = 2, .samples_per_second = 150}));
  report(0, 1, 1.0, 50);
  EXPECT_EQ(pages_->Training().samples_per_second, 100);
  // Whatever one stores.
  for (const double rate : {-1.0, std::nan(""), HUGE_VAL}) {
    report(0, UINT64_MAX, 1.0, rate);
    EXPECT_EQ(pages_->Training().samples_per_second, 100) << rate;
  }
  report(0, 1, std::nan(""), 0);
  EXPECT_TRUE(std::isnan(*pages_->Training().loss)) << "a loss that has diverged is seen";
}

TEST_F(ProgressPagesTest, SaysWhenAPageIsOpened) {
  if (!pages_->watched()) GTEST_SKIP() << "no inotify(7) here";
  EXPECT_EQ(opened_, 0);
  const Fd first = Open(0);
  EXPECT_TRUE(LoopUntil(loop_.get(), [this] { return opened_ == 1; }));
  const Fd again = Open(0);  // reported once for each page
  const Fd second = Open(1);
  EXPECT_TRUE(LoopUntil(loop_.get(), [this] { return opened_ == 2; }));
}

TEST_F(ProgressPagesTest, SaysSoOfTheNextGenerationByTheSameDescriptor) {
  if (!pages_->watched()) GTEST_SKIP() << "no inotify(7) here";
  const auto descriptors = [] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      count += std::filesystem::read_symlink(entry, gone) == "anon_inode:inotify" ? 1 : 0;
    }
    return count;
  };
  const Fd before = Open(0);  // which the loop hasn't seen yet
  int opened = 0;
  const auto next =
      *ProgressPages::Create(loop_.get(), 43, 2, [&] { ++opened; }, pages_.get(), {0});
  EXPECT_EQ(descriptors(), 1);
  pages_.reset();  // with the page of the worker that wasn't kept
  const Fd page(open(next->path(1).c_str(), O_RDWR));
  EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return opened > 0; }));
  EXPECT_EQ(opened, 1);
  EXPECT_EQ(opened_, 0);
}

TEST_F(ProgressPagesTest, AStopStepGoesThereAndAnAnswerBack) {
  const Fd page = Open(1);
  const auto at = [&](off_t offset) {
    uint64_t value = 0;
    EXPECT_EQ(pread(page.get(), &value, sizeof(value), offset), 8);
    return value;
  };
  const auto put = [&](off_t offset, uint64_t value) {
    EXPECT_EQ(pwrite(page.get(), &value, sizeof(value), offset), 8);
  };
  EXPECT_FALSE(pages_->Answer(1).heeds);
  pages_->PrepareStop(18);
  EXPECT_EQ(at(128), 18U);
  EXPECT_EQ(at(256), 0U);
  put(64, PackProgress(ProgressPhase::kTrain, 18));
  put(192, 18 << 1 | 1);
  const StopAnswer answer = pages_->Answer(1);
  EXPECT_TRUE(answer.heeds);
  EXPECT_EQ(answer.step, 18U);
  EXPECT_EQ(answer.stands_at, 18U);
  pages_->CommitStop(18);
  EXPECT_EQ(at(256), 18U);
  EXPECT_EQ(pages_->Answer(0).stands_at, 0U);
}

TEST_F(ProgressPagesTest, WhatAWorkerSaysOfItselfIsCleanAndFresh) {
  const Fd page = Open(1);
  const auto put = [&](off_t offset, uint64_t value) {
    EXPECT_EQ(pwrite(page.get(), &value, sizeof(value), offset), 8);
  };
  const Instant now = loop_->Now();
  put(384, 27);
  put(400, 9);
  put(408, 2);
  put(416, 8);
  put(392, static_cast<uint64_t>(now.nanoseconds()));
  const std::string place = "train.py:3 in \x1b[31mstep";
  ASSERT_EQ(pwrite(page.get(), place.data(), place.size(), 512),
            static_cast<ssize_t>(place.size()));
  const std::string groups = "all_reduce\t0\n0\t4\t2";
  ASSERT_EQ(pwrite(page.get(), groups.data(), groups.size(), 1536),
            static_cast<ssize_t>(groups.size()));
  Witness witness = pages_->Witnesses(now + absl::Seconds(1), absl::Seconds(1))[1];
  EXPECT_EQ(witness.collectives, 27U);
  EXPECT_EQ(witness.looks, 9U);
  EXPECT_EQ(witness.places, 2U);
  EXPECT_EQ(witness.jumps, 8U);
  EXPECT_TRUE(TurnsInCircles(witness));
  EXPECT_EQ(witness.inside_call, "all_reduce");
  EXPECT_EQ(witness.place.find('\x1b'), std::string::npos) << witness.place;
  EXPECT_EQ(witness.place.substr(0, 14), "train.py:3 in ");
  // A worker with a busy interpreter lock reports nothing any more: its former report is too old to
  // be believed, but what it had begun in its groups, to which it adds nothing, either.
  witness = pages_->Witnesses(now + absl::Seconds(2), absl::Seconds(1))[1];
  EXPECT_EQ(witness.collectives, 0U);
  EXPECT_FALSE(TurnsInCircles(witness));
  EXPECT_EQ(witness.inside_call, "");
  ASSERT_EQ(witness.groups.size(), 1U);
  EXPECT_EQ(witness.groups[0].sequence, 4U);
  // The worker's last report is believed, however long its process takes to end.
  put(432, 2);
  EXPECT_EQ(pages_->Witnesses(now + absl::Seconds(60), absl::Seconds(1))[1].collectives, 27U);
  // A report from the future is not believed.
  EXPECT_EQ(pages_->Witnesses(now - absl::Seconds(1), absl::Seconds(1))[1].collectives, 0U);
}

// The agent's loads must not fault, whatever a worker does.
TEST_F(ProgressPagesTest, NoWorkerChangesTheSize) {
  const Fd page = Open(0);
  EXPECT_NE(ftruncate(page.get(), 0), 0);
  EXPECT_NE(ftruncate(page.get(), 1 << 20), 0);
  EXPECT_NE(fcntl(page.get(), F_ADD_SEALS, F_SEAL_WRITE), 0) << "nor seals it";
  EXPECT_EQ(pages_->Words().size(), 2U);
}

TEST_F(ProgressPagesTest, WhoIsKeptKeepsItsPageAsIfItHadNotMarked) {
  const Fd page = Open(1);
  const auto put = [&](off_t offset, uint64_t value) {
    ASSERT_EQ(pwrite(page.get(), &value, sizeof(value), offset), 8);
  };
  put(kProgressWordOffset, PackProgress(ProgressPhase::kTrain, 7));
  put(kProgressAnswerOffset, 7 << 1 | 1);
  put(kProgressDataWaitOffset, 5'000);
  pages_->PrepareStop(9);
  const std::string path = pages_->path(1);
  auto next = ProgressPages::Create(loop_.get(), 43, 2, [] {}, pages_.get(), {1});
  ASSERT_TRUE(next.ok());
  pages_.reset();
  EXPECT_EQ((*next)->path(1), path);
  EXPECT_EQ((*next)->Words(), (std::vector<uint64_t>{0, 0}));
  EXPECT_EQ((*next)->DataWait(), absl::ZeroDuration());
  EXPECT_TRUE((*next)->Answer(1).heeds);
  EXPECT_EQ((*next)->Answer(1).stands_at, 0U);
  const auto at = [&](off_t offset) {
    uint64_t value = 0;
    EXPECT_EQ(pread(page.get(), &value, sizeof(value), offset), 8);
    return value;
  };
  EXPECT_EQ(at(kProgressGenerationOffset), 43U);
  EXPECT_EQ(at(kProgressPrepareOffset), 0U);
  put(kProgressWordOffset, PackProgress(ProgressPhase::kStart, 0));
  put(kProgressDataWaitOffset, 5'300);
  EXPECT_EQ((*next)->Words()[1], PackProgress(ProgressPhase::kStart, 0));
  EXPECT_EQ((*next)->DataWait(), absl::Nanoseconds(300));
}

TEST_F(ProgressPagesTest, GoneWithTheGeneration) {
  const std::string path = pages_->path(0);
  pages_.reset();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace ddprun::launcher
