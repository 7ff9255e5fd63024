#ifndef DDPRUN_TESTS_UNIT_RENDEZVOUS_JOURNAL_JOURNAL_FIXTURE_H_
#define DDPRUN_TESTS_UNIT_RENDEZVOUS_JOURNAL_JOURNAL_FIXTURE_H_

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/journal/sqlite_journal.h"
#include "tests/support/loop_until.h"
#include "tests/support/sample_records.h"

namespace ddprun::rendezvous {

// Journals in a folder that goes away with the test.
class JournalTest : public ::testing::Test {
 protected:
  JournalTest() : loop_(*EventLoop::Create()) {
    std::string made = ::testing::TempDir() + "/journal.XXXXXX";
    EXPECT_NE(mkdtemp(made.data()), nullptr);
    folder_ = made;
  }
  ~JournalTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string file() const { return folder_ + "/journal.db"; }

  std::unique_ptr<SqliteJournal> Open(SqliteJournal::Options options = {}) {
    auto journal = SqliteJournal::Open(loop_.get(), folder_, options);
    EXPECT_TRUE(journal.ok()) << journal.status();
    return journal.ok() ? *std::move(journal) : nullptr;
  }
  absl::Status OpenError() const { return SqliteJournal::Open(loop_.get(), folder_, {}).status(); }
  // Returns the jobs that a service finds in the file now, as they were written: without the life
  // that it counts for itself. Errors: that of the first damaged record.
  absl::StatusOr<std::vector<KeptJob>> Kept() {
    auto journal = SqliteJournal::Open(loop_.get(), folder_, {});
    if (!journal.ok()) return journal.status();
    auto kept = (*journal)->Load();
    if (!kept.ok()) return kept.status();
    if (!kept->damaged.empty()) return kept->damaged[0].why;
    for (KeptJob& job : kept->jobs) --job.record.life;
    return std::move(kept->jobs);
  }

  // Writes, and waits for the answer.
  absl::Status Write(SqliteJournal* journal, const std::string& run_id, JobRecord record) {
    std::optional<absl::Status> answer;
    journal->Write(run_id, std::move(record), [&](const absl::Status& status) { answer = status; });
    if (!LoopUntil(loop_.get(), [&] { return answer.has_value(); })) {
      return absl::InternalError("no answer");
    }
    return *answer;
  }

  absl::Status Retract(SqliteJournal* journal, const std::string& run_id) {
    std::optional<absl::Status> answer;
    journal->Retract(run_id, [&](const absl::Status& status) { answer = status; });
    if (!LoopUntil(loop_.get(), [&] { return answer.has_value(); })) {
      return absl::InternalError("no answer");
    }
    return *answer;
  }

  // Runs SQL on the file, as the tool sqlite3 would.
  void Sql(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(file().c_str(), &db), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sql << ": " << sqlite3_errmsg(db);
    sqlite3_close(db);
  }

  std::unique_ptr<EventLoop> loop_;
  std::string folder_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_UNIT_RENDEZVOUS_JOURNAL_JOURNAL_FIXTURE_H_
