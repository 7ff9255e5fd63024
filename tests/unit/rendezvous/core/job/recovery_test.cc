#include "rendezvous/core/job/recovery.h"

#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

TEST(Recovery, OfTheFirstServiceAwaitsNobody) {
  Recovery recovery;
  EXPECT_FALSE(recovery.open());
  EXPECT_FALSE(recovery.TakeNews());
  EXPECT_FALSE(recovery.NoteBack(1));
  EXPECT_EQ(recovery.BrokenInvariant(), "");
}

TEST(Recovery, IsOverWhenTheLastOneIsBackOrGone) {
  Recovery recovery;
  recovery.Begin(Instant() + absl::Seconds(1), 2, {3, 4});
  EXPECT_TRUE(recovery.TakeNews());
  EXPECT_FALSE(recovery.TakeNews());
  EXPECT_TRUE(recovery.open());
  EXPECT_EQ(recovery.life(), 2U);
  EXPECT_FALSE(recovery.NoteBack(7));  // a newcomer
  EXPECT_FALSE(recovery.NoteBack(4));
  EXPECT_FALSE(recovery.NoteBack(4));  // a second time
  EXPECT_TRUE(recovery.NoteGone(3));
  EXPECT_FALSE(recovery.open());
  EXPECT_FALSE(recovery.NoteGone(3));
  EXPECT_EQ(recovery.back(), 1U);
  EXPECT_EQ(recovery.gone(), 1U);
  EXPECT_EQ(recovery.Age(Instant() + absl::Seconds(3)), absl::Seconds(2));
  EXPECT_EQ(recovery.BrokenInvariant(), "");
}

TEST(Recovery, TellsWhoVanishedWhenNobodyElseIsAwaited) {
  Recovery recovery;
  EXPECT_EQ(recovery.vanished(), 0U);
  recovery.Begin(Instant(), 1, {3, 4, 5}, 4);
  EXPECT_EQ(recovery.vanished(), 0U);
  EXPECT_FALSE(recovery.NoteBack(3));
  EXPECT_EQ(recovery.vanished(), 0U);
  EXPECT_FALSE(recovery.NoteGone(5));
  EXPECT_EQ(recovery.vanished(), 4U);
  EXPECT_TRUE(recovery.NoteBack(4));
  EXPECT_EQ(recovery.vanished(), 0U);
}

TEST(Recovery, NobodyIsAwaitedForAJobThatHasEnded) {
  Recovery recovery;
  recovery.Begin(Instant(), 1, {3});
  recovery.Close();
  EXPECT_FALSE(recovery.open());
  EXPECT_FALSE(recovery.NoteBack(3));
}

TEST(RecoveryDeathTest, BeginsOnceAndNotInTheFirstLife) {
  Recovery recovery;
  EXPECT_DEATH(recovery.Begin(Instant(), 0, {}), "0");
  recovery.Begin(Instant(), 1, {});
  EXPECT_DEATH(recovery.Begin(Instant(), 1, {}), "1");
}

TEST(Recorder, IsDueOnceForAllOfAStep) {
  Recorder recorder(/*keeps=*/true);
  EXPECT_FALSE(recorder.TakeDue());
  recorder.Note();
  recorder.Note();
  EXPECT_TRUE(recorder.TakeDue());
  EXPECT_FALSE(recorder.TakeDue());
}

TEST(Recorder, WithoutAJournalNothingIsDue) {
  Recorder recorder(/*keeps=*/false);
  recorder.Note();
  EXPECT_FALSE(recorder.TakeDue());
}

TEST(Recorder, AJournalIsLostForGood) {
  Recorder recorder(/*keeps=*/true);
  recorder.Note();
  recorder.Lose(absl::DataLossError("disk full"));
  EXPECT_FALSE(recorder.TakeDue());
  EXPECT_FALSE(recorder.keeps());
  EXPECT_EQ(recorder.lost(), "DATA_LOSS: disk full");
  recorder.Note();
  EXPECT_FALSE(recorder.TakeDue());
  EXPECT_EQ(recorder.BrokenInvariant(), "");
}

}  // namespace
}  // namespace ddprun::rendezvous
