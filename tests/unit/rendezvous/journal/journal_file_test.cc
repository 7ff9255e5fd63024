#include "rendezvous/journal/journal_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "tests/unit/rendezvous/journal/journal_fixture.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;

class FileTest : public JournalTest {
 protected:
  void Keep(const std::string& run_id, uint32_t nodes) {
    auto journal = Open();
    ASSERT_TRUE(Write(journal.get(), run_id, RunningRecord(run_id, nodes)).ok());
  }
  std::string Bytes() const {
    std::ostringstream bytes;
    bytes << std::ifstream(file(), std::ios::binary).rdbuf();
    return bytes.str();
  }
  void SetBytes(const std::string& bytes) const {
    std::ofstream(file(), std::ios::binary | std::ios::trunc) << bytes;
  }
  void ExpectDamaged(const std::string& what) {
    const absl::Status status = Kept().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(status.message(), HasSubstr(file()));
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_THAT(status.message(), HasSubstr("Move it away to start the job anew"));
  }
};

TEST_F(FileTest, PeopleCanReadTheColumns) {
  Keep("job7", 3);
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(file().c_str(), &db), SQLITE_OK);
  std::vector<std::string> row;
  const auto take = [](void* to, int count, char** values, char** /*names*/) {
    for (int i = 0; i < count; ++i)
      static_cast<std::vector<std::string>*>(to)->push_back(values[i]);
    return 0;
  };
  sqlite3_exec(db, "SELECT run_id, term, life, generation, phase, written_at FROM jobs", take, &row,
               nullptr);
  sqlite3_close(db);
  ASSERT_EQ(row.size(), 6U);
  EXPECT_EQ(std::vector<std::string>(row.begin(), row.end() - 1),
            (std::vector<std::string>{"job7", "7", "0", "1", "running"}));
  EXPECT_THAT(row.back(), ::testing::MatchesRegex("20..-..-..T..:..:...00:00"));
}

TEST_F(FileTest, AChangedColumnOrBitIsFound) {
  for (const char* change : {"run_id = 'x'", "made_ns = made_ns + 1", "boot_id = ''",
                             "crc = crc + 1", "record = zeroblob(length(record))"}) {
    Keep("job7", 3);
    Sql(absl::StrCat("UPDATE jobs SET ", change));
    ExpectDamaged("doesn't match its checksum");
    Sql("DELETE FROM jobs");
  }
}

TEST_F(FileTest, ARecordThatNoServiceWritesIsDamage) {
  Keep("job7", 3);
  // All checksums are right.
  auto opened = JournalFile::Open(folder_, false);
  JobRecord record = RunningRecord("job7", 3);
  record.term = Term(0);
  ASSERT_TRUE((*opened)->Put({.run_id = "job7", .record = record, .boot = "", .made = {}}).ok());
  opened->reset();
  ExpectDamaged("term: is 0");
  opened = JournalFile::Open(folder_, false);
  ASSERT_TRUE(
      (*opened)
          ->Put({.run_id = "job7", .record = RunningRecord("job8", 1), .boot = "", .made = {}})
          .ok());
  opened->reset();
  ExpectDamaged("is that of job 'job8'");
}

// One byte after the other: never a record that isn't what was written, and never an abort.
TEST_F(FileTest, AChangedByteIsFoundOrDoesNotMatter) {
  Keep("job7", 3);
  const JobRecord written = RunningRecord("job7", 3);
  const std::string sound = Bytes();
  int found = 0;
  for (size_t i = 0; i < sound.size(); i += 29) {
    std::string damaged = sound;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    SetBytes(damaged);
    const auto kept = Kept();
    if (!kept.ok()) {
      ++found;
      continue;
    }
    for (const KeptJob& job : *kept) EXPECT_EQ(job.record, written) << "byte " << i;
  }
  EXPECT_GT(found, 5);
}

TEST_F(FileTest, AFileThatIsCutShortIsDamaged) {
  Keep("job7", 300);
  const std::string sound = Bytes();
  ASSERT_GT(sound.size(), 20'000U);
  SetBytes(sound.substr(0, sound.size() / 2));
  ExpectDamaged("");
  SetBytes(std::string(8192, 'x'));
  ExpectDamaged("not a database");
}

TEST_F(FileTest, FilesOfOthersAreLeftAlone) {
  Sql("CREATE TABLE theirs (a)");
  const absl::Status status = OpenError();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("is another program's"));
}

TEST_F(FileTest, ALaterFormatIsNotRead) {
  Keep("job7", 1);
  Sql("PRAGMA user_version = 2");
  const absl::Status status = OpenError();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("of a later release (format 2, this one knows 1)"));
  EXPECT_THAT(status.message(), HasSubstr("upgrade ddprun"));
}

TEST_F(FileTest, AFolderThatCanNotBeMade) {
  std::ofstream(folder_ + "/file") << "x";
  folder_ += "/file/below";
  const absl::Status status = OpenError();
  EXPECT_THAT(status.message(), HasSubstr(folder_));
  EXPECT_THAT(status.message(), HasSubstr("ENOTDIR"));
  folder_ = "/proc/nope";
  EXPECT_THAT(OpenError().message(), HasSubstr("/proc/nope"));
}

// Acts as a user who may do nothing, where the test is root.
class AsNobody {
 public:
  AsNobody() { Become(65534); }
  ~AsNobody() { Become(0); }

 private:
  static void Become(uid_t user) {
    if (getuid() != 0) return;
    EXPECT_EQ(seteuid(user), 0);
  }
};

TEST_F(FileTest, AFolderOrFileWithoutTheRightToWrite) {
  Keep("job7", 1);
  ASSERT_EQ(chmod(file().c_str(), 0444), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0555), 0);
  {
    const AsNobody nobody;
    const absl::Status status = OpenError();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_THAT(status.message(), HasSubstr(file()));
  }
  std::filesystem::remove(file());
  if (getuid() != 0) return;  // an owner may write to the folder again
  const AsNobody nobody;
  EXPECT_THAT(OpenError().message(), HasSubstr("EACCES"));
}

// The bound on files' sizes stands for a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

TEST_F(FileTest, AFullDiskIsAnErrorAndLeavesNoOldRecord) {
  auto journal = Open();
  ASSERT_TRUE(Write(journal.get(), "job7", RunningRecord("job7", 1)).ok());
  absl::Status status;
  {
    const FullDisk full(64 << 10);
    status = Write(journal.get(), "job7", RunningRecord("job7", 2000));
    const absl::Status retracted = Retract(journal.get(), "job7");
    EXPECT_TRUE(retracted.ok()) << retracted;
    journal.reset();
  }
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr(file()));
  EXPECT_THAT(status.ToString(), HasSubstr("EFBIG"));
  const auto kept = Kept();
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_TRUE(kept->empty());
}

}  // namespace
}  // namespace ddprun::rendezvous
