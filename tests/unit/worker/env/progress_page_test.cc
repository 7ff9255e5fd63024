#include "worker/env/progress_page.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fd.h"

namespace ddprun::worker {
namespace {

using ::testing::HasSubstr;

// A page as an agent makes it, by the numbers of docs/PROGRESS.md.
class ProgressPageTest : public ::testing::Test {
 protected:
  ProgressPageTest() : file_(memfd_create("page", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(file_.get(), 4096), 0);
    Write(0, "DDPRUNPG");
    Write(8, std::string("\1\0\0\0\0\0\0\0", 8));
  }
  void Write(off_t offset, const std::string& bytes) {
    EXPECT_EQ(pwrite(file_.get(), bytes.data(), bytes.size(), offset),
              static_cast<ssize_t>(bytes.size()));
  }
  uint64_t Word() const {
    uint64_t word = 0;
    EXPECT_EQ(pread(file_.get(), &word, sizeof(word), 64), 8);
    return word;
  }
  void Put(off_t offset, uint64_t value) {
    EXPECT_EQ(pwrite(file_.get(), &value, sizeof(value), offset), 8);
  }
  uint64_t At(off_t offset) const {
    uint64_t value = 0;
    EXPECT_EQ(pread(file_.get(), &value, sizeof(value), offset), 8);
    return value;
  }
  std::string path() const { return absl::StrCat("/proc/self/fd/", file_.get()); }

  Fd file_;
};

TEST_F(ProgressPageTest, AReportIsSeenByWhoMadeThePage) {
  absl::StatusOr<ProgressPage> page = ProgressPage::Open(path());
  ASSERT_TRUE(page.ok()) << page.status();
  page->Report(std::nullopt, std::nullopt);
  EXPECT_EQ(At(464), 0U);
  page->Report(0.0, std::nullopt);
  EXPECT_EQ(At(464), 1U) << "a loss of 0 is one";
  page->Report(std::nullopt, 4000.0);
  EXPECT_EQ(At(464), 3U);
  page->Report(0.25, std::nullopt);
  EXPECT_EQ(std::bit_cast<double>(At(448)), 0.25);
  EXPECT_EQ(std::bit_cast<double>(At(456)), 4000.0) << "what isn't given stays";
  ProgressPage().Report(1.0, 1.0);  // one that was never opened takes it, too
}

TEST_F(ProgressPageTest, AMarkIsSeenByWhoMadeThePage) {
  absl::StatusOr<ProgressPage> page = ProgressPage::Open(path());
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->word(), 0U);
  page->Mark(ProgressPhase::kTrain, 258);
  EXPECT_EQ(Word(), uint64_t{2} << 56 | 258);
  EXPECT_EQ(ProgressPhaseOf(page->word()), ProgressPhase::kTrain);
  EXPECT_EQ(ProgressStepOf(page->word()), 258U);
  ProgressPage moved = *std::move(page);
  moved.Mark(ProgressPhase::kDone, kProgressStepMax);
  EXPECT_EQ(ProgressStepOf(Word()), kProgressStepMax);
}

TEST_F(ProgressPageTest, APageThatWasNeverOpenedTakesMarks) {
  ProgressPage page;
  page.Mark(ProgressPhase::kTrain, 1);
  EXPECT_FALSE(page.is_open());
  EXPECT_EQ(page.word(), 0U);
}

TEST_F(ProgressPageTest, StopsWhereItIsCommitted) {
  absl::StatusOr<ProgressPage> page = ProgressPage::Open(path());
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_FALSE(page->StopAt(7));
  EXPECT_EQ(Word(), uint64_t{2} << 56 | 7);
  EXPECT_EQ(At(192), 1U) << "it asks";
  Put(128, 9);
  EXPECT_FALSE(page->StopAt(8));
  EXPECT_EQ(At(192), 1U);
  Put(256, 9);
  EXPECT_TRUE(page->StopAt(9));
  EXPECT_EQ(At(192), 9U << 1 | 1);
}

TEST_F(ProgressPageTest, WaitsForTheAgreementAndGoesOnWhenTheStepIsRaised) {
  absl::StatusOr<ProgressPage> page = ProgressPage::Open(path());
  ASSERT_TRUE(page.ok()) << page.status();
  Put(128, 9);
  std::atomic<bool> stopped = false;
  std::thread worker([&] {
    uint64_t step = 9;
    while (!page->StopAt(step)) ++step;
    stopped = true;
    EXPECT_EQ(step, 11U);
  });
  // Held at 9: its answer is there, and nothing else happens until the step is raised.
  while (At(192) != (9U << 1 | 1)) std::this_thread::yield();
  EXPECT_FALSE(stopped);
  Put(128, 11);
  while (At(192) != (11U << 1 | 1)) std::this_thread::yield();
  Put(256, 11);
  worker.join();
  EXPECT_TRUE(stopped);
}

// The worker slept between its look at what is prepared and the one at what is committed.
TEST_F(ProgressPageTest, ACommitOfALaterStepThanTheOneItWaitsAtDoesNotStopIt) {
  absl::StatusOr<ProgressPage> page = ProgressPage::Open(path());
  ASSERT_TRUE(page.ok()) << page.status();
  Put(128, 9);
  Put(256, 11);
  std::thread worker([&] {
    EXPECT_FALSE(page->StopAt(9));
    EXPECT_FALSE(page->StopAt(10));
    EXPECT_TRUE(page->StopAt(12)) << "steps need not be counted one by one";
  });
  while (At(192) != (9U << 1 | 1)) std::this_thread::yield();
  Put(128, 11);
  worker.join();
}

TEST_F(ProgressPageTest, WithoutAPageNobodyIsStopped) {
  ProgressPage page;
  EXPECT_FALSE(page.StopAt(7));
}

TEST_F(ProgressPageTest, RefusesWhatIsNoPage) {
  EXPECT_TRUE(absl::IsNotFound(ProgressPage::Open("/nowhere/at all").status()));
  Write(8, "\2");
  EXPECT_THAT(std::string(ProgressPage::Open(path()).status().message()), HasSubstr("version 1"));
  Write(0, "X");
  EXPECT_TRUE(absl::IsFailedPrecondition(ProgressPage::Open(path()).status()));
}

TEST(ProgressWordTest, PhasesOfLaterVersionsCountAsIdle) {
  EXPECT_EQ(ProgressPhaseOf(uint64_t{200} << 56 | 7), ProgressPhase::kIdle);
  EXPECT_EQ(ProgressStepOf(uint64_t{200} << 56 | 7), 7U);
}

}  // namespace
}  // namespace ddprun::worker
