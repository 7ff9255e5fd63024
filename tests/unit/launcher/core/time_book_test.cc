#include "launcher/core/time_book.h"

#include <gtest/gtest.h>

#include "base/progress_page.h"

namespace ddprun::launcher {
namespace {

using rendezvous::TimeCause;

constexpr Instant BookAt(int64_t ms) { return Instant::FromNanoseconds(ms * 1'000'000); }
constexpr absl::Duration BookMs(int64_t ms) { return absl::Milliseconds(ms); }

constexpr uint64_t Training(uint64_t step) { return PackProgress(ProgressPhase::kTrain, step); }
constexpr uint64_t Saving(uint64_t step) { return PackProgress(ProgressPhase::kCheckpoint, step); }

TEST(TimeBook, WhatComesBeforeTheFirstMarkIsStartUp) {
  TimeBook book(0, BookAt(0));
  book.OnLook(BookAt(50), {.words = {0, 0}});
  EXPECT_EQ(book.Read(BookAt(80)).last_in, TimeCause::kUnmarked);
  EXPECT_EQ(book.Read(BookAt(80)).last, BookMs(80));
  book.OnLook(BookAt(100), {.words = {Training(1), 0}});
  EXPECT_EQ(book.Read(BookAt(100)).spent[TimeCause::kStartUp], BookMs(100));
  EXPECT_EQ(book.Read(BookAt(130)).last, BookMs(30));
  EXPECT_EQ(book.Read(BookAt(130)).last_in, TimeCause::kTraining);
}

TEST(TimeBook, WhoSavesHoldsUpTheOthers) {
  TimeBook book(0, BookAt(0));
  book.OnLook(BookAt(10), {.words = {Training(1), Training(1)}});
  book.OnLook(BookAt(30), {.words = {Saving(1), Training(1)}});
  book.OnLook(BookAt(90), {.words = {Training(2), Training(2)}});
  const rendezvous::NodeTime time = book.Read(BookAt(90));
  EXPECT_EQ(time.spent[TimeCause::kTraining], BookMs(20));
  EXPECT_EQ(time.spent[TimeCause::kCheckpoint], BookMs(60));
}

TEST(TimeBook, StepsThatWereDoneBeforeAreRework) {
  TimeBook book(7, BookAt(0));
  book.OnLook(BookAt(10), {.words = {Training(6)}});
  book.OnLook(BookAt(30), {.words = {Training(7)}});
  book.OnLook(BookAt(60), {.words = {Training(8)}});
  book.OnLook(BookAt(100), {.words = {Training(9)}});
  const rendezvous::NodeTime time = book.Read(BookAt(100));
  EXPECT_EQ(time.spent[TimeCause::kRework], BookMs(50));
  EXPECT_EQ(time.spent[TimeCause::kTraining], BookMs(40));
}

// A C++ program's marks name the steps that are done.
TEST(TimeBook, StepZeroOfAFirstGenerationIsTraining) {
  TimeBook book(0, BookAt(0));
  book.OnLook(BookAt(10), {.words = {Training(0)}});
  book.OnLook(BookAt(90), {.words = {Training(1)}});
  EXPECT_EQ(book.Read(BookAt(90)).spent[TimeCause::kTraining], BookMs(80));
}

// Counted steps begin with 1 in each generation, so they don't show which steps were done before.
TEST(TimeBook, CountedStepsAreTrainingAndNeverRework) {
  TimeBook book(7, BookAt(0));
  book.OnLook(BookAt(100), {.words = {PackProgress(ProgressPhase::kCounted, 1)}});
  book.OnLook(BookAt(140), {.words = {PackProgress(ProgressPhase::kCounted, 2)}});
  const rendezvous::NodeTime time = book.Read(BookAt(150));
  EXPECT_EQ(time.spent[TimeCause::kStartUp], BookMs(100));
  EXPECT_EQ(time.spent[TimeCause::kTraining], BookMs(40));
  EXPECT_EQ(time.spent[TimeCause::kRework], BookMs(0));
  EXPECT_EQ(time.last_in, TimeCause::kTraining);
}

TEST(TimeBook, WaitingForDataIsTakenFromTheSteps) {
  TimeBook book(0, BookAt(0));
  // What was waited for during the start stays part of it.
  book.OnLook(BookAt(100), {.words = {Training(1)}, .data_wait = BookMs(90)});
  // The wait of step 1 is over before a look shows step 2.
  book.OnLook(BookAt(140), {.words = {Training(1)}, .data_wait = BookMs(90 + 30)});
  book.OnLook(BookAt(150), {.words = {Training(2)}, .data_wait = BookMs(90 + 30)});
  const rendezvous::NodeTime time = book.Read(BookAt(150));
  EXPECT_EQ(time.spent[TimeCause::kStartUp], BookMs(100));
  EXPECT_EQ(time.spent[TimeCause::kDataWait], BookMs(30));
  EXPECT_EQ(time.spent[TimeCause::kTraining], BookMs(20));
}

TEST(TimeBook, TheFirstWaitAfterTheStartIsOfTheFirstStepThoughOneLookShowsBoth) {
  TimeBook book(0, BookAt(0));
  book.OnLook(BookAt(100),
              {.words = {Training(1)}, .marked = {BookAt(93)}, .data_wait = BookMs(5)});
  book.OnLook(BookAt(110),
              {.words = {Training(2)}, .marked = {BookAt(107)}, .data_wait = BookMs(5)});
  const rendezvous::NodeTime time = book.Read(BookAt(110));
  EXPECT_EQ(time.spent[TimeCause::kStartUp], BookMs(93));
  EXPECT_EQ(time.spent[TimeCause::kDataWait], BookMs(5));
  EXPECT_EQ(time.spent[TimeCause::kTraining], BookMs(9));
}

TEST(TimeBook, AMarkCountsFromTheTimeThatWasStoredWithIt) {
  TimeBook book(0, BookAt(0));
  book.OnLook(BookAt(100), {.words = {Training(1)}, .marked = {BookAt(93)}});
  book.OnLook(BookAt(200), {.words = {Saving(1)}, .marked = {BookAt(193)}});
  EXPECT_EQ(book.Read(BookAt(200)).spent[TimeCause::kStartUp], BookMs(93));
  EXPECT_EQ(book.Read(BookAt(200)).spent[TimeCause::kTraining], BookMs(100));
}

TEST(TimeBook, TwinATimeThatCannotBeIsNotBelieved) {
  for (const Instant wrong : {BookAt(20), BookAt(5000), Instant::FromNanoseconds(-1)}) {
    TimeBook book(0, BookAt(0));
    book.OnLook(BookAt(100),
                {.words = {Training(1)}, .marked = {wrong < BookAt(0) ? wrong : BookAt(5000)}});
    book.OnLook(BookAt(200), {.words = {Saving(1)}, .marked = {wrong}});
    EXPECT_EQ(book.Read(BookAt(200)).spent[TimeCause::kTraining], BookMs(100));
  }
}

TEST(TimeBook, NothingIsBookedAfterItsEnd) {
  TimeBook book(0, BookAt(0));
  book.OnLook(BookAt(10), {.words = {Training(1)}});
  book.Close(BookAt(50));
  book.Close(BookAt(90));
  book.OnLook(BookAt(120), {.words = {Saving(1)}});
  const rendezvous::NodeTime time = book.Read(BookAt(200));
  EXPECT_EQ(time.last, BookMs(40));
  EXPECT_EQ(time.last_in, TimeCause::kTraining);
  EXPECT_EQ(time.spent.Total() + time.last, BookMs(50));
}

TEST(TimeBook, WhoHasSaidThatItIsDoneEnds) {
  TimeBook book(0, BookAt(0));
  book.OnLook(BookAt(10), {.words = {Training(1)}});
  book.OnLook(BookAt(20), {.words = {PackProgress(ProgressPhase::kDone, 1)}});
  EXPECT_EQ(book.Read(BookAt(20)).last_in, TimeCause::kEnding);
}

}  // namespace
}  // namespace ddprun::launcher
