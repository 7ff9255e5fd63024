#include "rendezvous/journal/sqlite_journal.h"

#include <gmock/gmock.h>

#include <future>

#include "tests/unit/rendezvous/journal/journal_fixture.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;

TEST_F(JournalTest, ANewFolderHoldsNothing) {
  folder_ += "/a/b";
  auto journal = Open();
  EXPECT_EQ(journal->where(), file());
  EXPECT_TRUE(journal->keeps());
  EXPECT_TRUE(journal->Load()->jobs.empty());
  struct stat made {};
  ASSERT_EQ(stat(folder_.c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777U, 0700U);
  ASSERT_EQ(stat(file().c_str(), &made), 0);
  EXPECT_EQ(made.st_mode & 0777U, 0600U);
}

TEST_F(JournalTest, TheLastRecordOfEachJobIsKept) {
  const JobRecord first = RunningRecord("job7", 2);
  const JobRecord last = ClosingJobRecord("job7");
  const JobRecord other = RunningRecord("other", 1);
  for (const bool outlives_machine : {false, true}) {
    auto journal = Open({.outlives_machine = outlives_machine});
    ASSERT_TRUE(Write(journal.get(), "job7", first).ok());
    ASSERT_TRUE(Write(journal.get(), "other", other).ok());
    ASSERT_TRUE(Write(journal.get(), "job7", last).ok());
    journal.reset();
    const auto kept = Kept();
    ASSERT_TRUE(kept.ok()) << kept.status();
    ASSERT_EQ(kept->size(), 2U);
    EXPECT_EQ(kept->at(0).run_id, "job7");
    EXPECT_EQ(kept->at(0).record, last);
    EXPECT_EQ(kept->at(1).record, other);
  }
}

TEST_F(JournalTest, NoTwoServicesHaveOneLife) {
  ASSERT_TRUE(Write(Open().get(), "job7", RunningRecord("job7", 2)).ok());
  for (uint64_t life = 1; life < 4; ++life) {
    const auto kept = Open()->Load();
    ASSERT_TRUE(kept.ok()) << kept.status();
    EXPECT_EQ(kept->jobs.at(0).record.life, life);
  }
}

TEST_F(JournalTest, ADamagedRecordCostsNoOtherJobItsOwn) {
  auto journal = Open();
  for (const char* run_id : {"a", "b", "c"}) {
    ASSERT_TRUE(Write(journal.get(), run_id, RunningRecord(run_id, 2)).ok());
  }
  journal.reset();
  Sql("UPDATE jobs SET record = x'00' WHERE run_id = 'b'");
  journal = Open();
  const auto found = journal->Load();
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_EQ(found->jobs.size(), 2U);
  EXPECT_EQ(found->jobs[1].run_id, "c");
  ASSERT_EQ(found->damaged.size(), 1U);
  EXPECT_EQ(found->damaged[0].what, "the record of job 'b' doesn't match its checksum");
  ASSERT_TRUE(journal->SetAside(found->damaged[0]).ok());
  ASSERT_TRUE(Write(journal.get(), "b", RunningRecord("b", 1)).ok());  // begun anew
  journal.reset();
  const auto kept = Kept();
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->size(), 3U);
  // Only job b's bytes were set aside.
  Sql("CREATE TABLE proof (n CHECK (n = 1)); INSERT INTO proof SELECT count(*) FROM damaged "
      "WHERE run_id = 'b' AND record = x'00' AND phase = 'running'");
}

TEST_F(JournalTest, AForgottenJobIsGone) {
  auto journal = Open();
  ASSERT_TRUE(Write(journal.get(), "job7", RunningRecord("job7", 2)).ok());
  ASSERT_TRUE(Write(journal.get(), "other", RunningRecord("other", 2)).ok());
  journal->Forget("job7");
  journal->Forget("never there");
  journal.reset();  // what was said before is done before
  const auto kept = Kept();
  ASSERT_EQ(kept->size(), 1U);
  EXPECT_EQ(kept->at(0).run_id, "other");
}

TEST_F(JournalTest, ARecordOfAJobThatNobodyHasJoined) {
  auto journal = Open();
  JobRecord record;
  record.term = Term(UINT64_MAX);
  ASSERT_TRUE(Write(journal.get(), "job7", record).ok());
  journal.reset();
  EXPECT_EQ(Kept()->at(0).record, record);
}

// A run id is any name.
TEST_F(JournalTest, RunIdsNeedNoQuotes) {
  const std::string run_id = "it's \"ü\"; DROP TABLE jobs";
  auto journal = Open();
  ASSERT_TRUE(Write(journal.get(), run_id, RunningRecord(run_id, 1)).ok());
  journal.reset();
  EXPECT_EQ(Kept()->at(0).run_id, run_id);
}

TEST_F(JournalTest, TheTimeSinceARecordWasMadeIsKnown) {
  auto journal = Open();
  const Instant before = loop_->Now();
  ASSERT_TRUE(Write(journal.get(), "job7", RunningRecord("job7", 1)).ok());
  const Instant after = loop_->Now();
  journal.reset();
  const auto kept = Kept();
  EXPECT_GE(kept->at(0).elapsed, absl::ZeroDuration());
  EXPECT_LE(kept->at(0).elapsed, loop_->Now() - before);
  EXPECT_GE(kept->at(0).elapsed + (after - before), absl::ZeroDuration());
}

// Otherwise a service would count the time of a machine that was off, by a clock that began anew.
TEST_F(JournalTest, AfterARestartOfTheMachineTheTimeIsNotKnown) {
  {
    auto file = JournalFile::Open(folder_, false);
    ASSERT_TRUE(file.ok());
    ASSERT_TRUE((*file)
                    ->Put({.run_id = "job7",
                           .record = RunningRecord("job7", 1),
                           .boot = "another boot",
                           .made = Instant::FromNanoseconds(1)})
                    .ok());
    ASSERT_TRUE((*file)
                    ->Put({.run_id = "later",
                           .record = RunningRecord("later", 1),
                           .boot = BootId(),
                           .made = loop_->Now() + absl::Hours(1)})
                    .ok());
  }
  const auto kept = Kept();
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->at(0).elapsed, absl::ZeroDuration());
  EXPECT_EQ(kept->at(1).elapsed, absl::ZeroDuration());  // a clock that went back
}

// Stands for a network file system with locks that hold on one machine only.
class WithoutLocks : public JournalTest {
 protected:
  std::unique_ptr<SqliteJournal> Take(std::optional<absl::Status>* taken_over) {
    return Open({.outlives_machine = true,
                 .on_taken_over = [taken_over](absl::Status why) { *taken_over = std::move(why); },
                 .vfs = "unix-none"});
  }
  std::optional<absl::Status> first_lost_;
  std::optional<absl::Status> second_lost_;
};

TEST_F(WithoutLocks, WhoIsTakenOverDecidesNothingMore) {
  auto first = Take(&first_lost_);
  ASSERT_TRUE(Write(first.get(), "job7", RunningRecord("job7", 2)).ok());
  auto second = Take(&second_lost_);
  ASSERT_EQ(second->Load()->jobs.size(), 1U);
  first->Write("job7", RunningRecord("job7", 3), [](const absl::Status&) { FAIL(); });
  ASSERT_TRUE(LoopUntil(loop_.get(), [&] { return first_lost_.has_value(); }));
  EXPECT_EQ(first_lost_->code(), absl::StatusCode::kAborted) << *first_lost_;
  EXPECT_THAT(first_lost_->message(), HasSubstr("was taken over (process "));
  first->Forget("job7");  // nor does it take anything away
  first.reset();
  EXPECT_TRUE(Write(second.get(), "job7", RunningRecord("job7", 1)).ok());
  EXPECT_EQ(second_lost_, std::nullopt);
  second.reset();
  EXPECT_EQ(Kept()->at(0).record, RunningRecord("job7", 1));
}

// The second service takes the file between a write and its confirmation.
TEST_F(WithoutLocks, WhoComesDuringAWriteIsSeen) {
  auto first = Take(&first_lost_);
  std::unique_ptr<JournalFile> second;
  bool answered = false;
  first->Write("job7", RunningRecord("job7", 2), [&](const absl::Status&) { answered = true; });
  first->CallOnDisk([&] { second = *JournalFile::Open(folder_, true, "unix-none"); });
  first->Write("job7", RunningRecord("job7", 3), [](const absl::Status&) { FAIL(); });
  ASSERT_TRUE(LoopUntil(loop_.get(), [&] { return first_lost_.has_value(); }));
  EXPECT_TRUE(answered);
}

TEST_F(JournalTest, AFileThatWasTakenAwayIsAnError) {
  auto journal = Open();
  ASSERT_TRUE(Write(journal.get(), "job7", RunningRecord("job7", 1)).ok());
  std::filesystem::remove_all(folder_);
  const absl::Status status = Write(journal.get(), "job7", RunningRecord("job7", 2));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(status.message(), HasSubstr(file()));
  EXPECT_THAT(status.message(), HasSubstr("removed or moved away"));
}

// Holds up the journal's thread.
class SlowDisk {
 public:
  explicit SlowDisk(SqliteJournal* journal) {
    journal->CallOnDisk([end = end_.get_future().share()] { end.wait(); });
  }
  void End() { end_.set_value(); }

 private:
  std::promise<void> end_;
};

TEST_F(JournalTest, ASlowDiskIsWaitedForAsLongAsThePatience) {
  ASSERT_TRUE(Write(Open().get(), "job7", RunningRecord("job7", 1)).ok());  // with patience
  auto journal = Open({.patience = absl::Milliseconds(50)});
  SlowDisk disk(journal.get());
  const Instant before = loop_->Now();
  const absl::Status late = Write(journal.get(), "job7", RunningRecord("job7", 2));
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(loop_->Now() - before, absl::Milliseconds(50));
  EXPECT_THAT(late.message(), HasSubstr(file()));
  EXPECT_THAT(late.message(), HasSubstr("ms for a record so far"));
  // For good, also when the disk is back, and for other jobs.
  disk.End();
  bool answered = false;
  journal->Write("other", RunningRecord("other", 1), [&](const absl::Status& status) {
    answered = true;
    EXPECT_EQ(status, late);
  });
  EXPECT_TRUE(answered);  // at once
}

// What isn't the last word any more is no word at all.
TEST_F(JournalTest, ARetractedRecordIsGoneBeforeTheAnswer) {
  auto journal = Open();
  ASSERT_TRUE(Write(journal.get(), "job7", RunningRecord("job7", 1)).ok());
  ASSERT_TRUE(Write(journal.get(), "other", RunningRecord("other", 1)).ok());
  ASSERT_TRUE(Retract(journal.get(), "job7").ok());
  journal.reset();
  ASSERT_EQ(Kept()->size(), 1U);
  EXPECT_EQ(Kept()->at(0).run_id, "other");
}

// The whole file is removed: its name is taken away without waiting for the disk.
TEST_F(JournalTest, AlsoWhileTheDiskHangs) {
  ASSERT_TRUE(Write(Open().get(), "job7", RunningRecord("job7", 1)).ok());  // with patience
  // Enough for the name on a busy machine, which has as long again.
  auto journal = Open({.patience = absl::Seconds(2)});
  SlowDisk disk(journal.get());
  ASSERT_FALSE(Write(journal.get(), "job7", RunningRecord("job7", 2)).ok());
  const absl::Status retracted = Retract(journal.get(), "job7");
  EXPECT_TRUE(retracted.ok()) << retracted;
  EXPECT_FALSE(std::filesystem::exists(file()));
  disk.End();
  journal.reset();
  EXPECT_TRUE(Kept()->empty());
}

TEST_F(JournalTest, OneThatCanNotBeRetractedIsNamed) {
  ASSERT_TRUE(Write(Open().get(), "job7", RunningRecord("job7", 1)).ok());  // with patience
  auto journal = Open({.patience = absl::Milliseconds(50)});
  SlowDisk disk(journal.get());
  const absl::Status first = Write(journal.get(), "job7", RunningRecord("job7", 2));
  std::filesystem::rename(file(), folder_ + "/elsewhere");
  std::filesystem::create_directory(file());
  const absl::Status retracted = Retract(journal.get(), "job7");
  EXPECT_FALSE(retracted.ok());
  EXPECT_THAT(retracted.message(), HasSubstr(file()));
  EXPECT_EQ(Write(journal.get(), "job7", RunningRecord("job7", 3)), first) << "the first error";
  disk.End();
}

TEST_F(JournalTest, AllThatWaitHearTheFirstError) {
  auto journal = Open({.patience = absl::Milliseconds(50)});
  SlowDisk disk(journal.get());
  int failed = 0;
  for (const char* run_id : {"a", "b", "c"}) {
    journal->Write(run_id, RunningRecord(run_id, 1), [&](const absl::Status& status) {
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      ++failed;
    });
  }
  ASSERT_TRUE(LoopUntil(loop_.get(), [&] { return failed == 3; }));
  disk.End();
}

// The answer to one may end the journal.
TEST_F(JournalTest, AnAnswerMayDestroyTheJournal) {
  for (const bool slow : {false, true}) {
    auto journal = Open({.patience = absl::Milliseconds(slow ? 20 : 20'000)});
    std::optional<SlowDisk> disk;
    if (slow) disk.emplace(journal.get());
    bool answered = false;
    journal->Write("job7", RunningRecord("job7", 1), [&](const absl::Status& status) {
      EXPECT_EQ(status.ok(), !slow);
      if (disk) disk->End();
      journal.reset();
      answered = true;
    });
    ASSERT_TRUE(LoopUntil(loop_.get(), [&] { return answered; }));
  }
}

// A disk that hangs holds up the end of a service no longer than its patience.
TEST_F(JournalTest, ADiskThatHangsIsLeftBehind) {
  auto journal = Open({.patience = absl::Milliseconds(20)});
  auto release = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<void>>();
  journal->CallOnDisk([release, ended] {
    release->get_future().wait();
    ended->set_value();
  });
  journal->Write("job7", RunningRecord("job7", 1), [](const absl::Status&) { FAIL(); });
  journal.reset();
  release->set_value();
  ended->get_future().wait();
}

TEST(NoJournalTest, KeepsNothing) {
  NoJournal journal;
  EXPECT_FALSE(journal.keeps());
  EXPECT_EQ(journal.where(), "");
  bool answered = false;
  journal.Write("job7", {}, [&](const absl::Status& status) { answered = status.ok(); });
  EXPECT_TRUE(answered);
}

}  // namespace
}  // namespace ddprun::rendezvous
