#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

#include "base/rng.h"
#include "tests/unit/rendezvous/journal/journal_fixture.h"

// With other processes, which are killed.
namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20261123;
constexpr int kKills = 30;

// A forked process, with a pipe from it.
class Child {
 public:
  explicit Child(const std::function<void(int)>& body) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      body(ends[1]);
      _exit(0);
    }
    close(ends[1]);
    from_ = ends[0];
  }
  ~Child() {
    Kill();
    close(from_);
  }
  pid_t pid() const { return pid_; }
  // The next byte that it wrote; 0 = it has ended.
  unsigned char Next() const {
    unsigned char byte = 0;
    return read(from_, &byte, 1) == 1 ? byte : 0;
  }
  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);  // NOLINT: our own child, not reaped yet
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
    pid_ = -1;
  }

 private:
  pid_t pid_;
  int from_;
};

void Say(int to, unsigned char byte) { EXPECT_EQ(write(to, &byte, 1), 1); }

class ProcessTest : public JournalTest {};

TEST_F(ProcessTest, AFileHasOneServiceAndIsFreeWhenThatIsKilled) {
  Child holder([this](int to) {
    const auto file = JournalFile::Open(folder_, false);
    Say(to, file.ok() ? 1 : 2);
    pause();
  });
  ASSERT_EQ(holder.Next(), 1);
  const absl::Status status = OpenError();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.message(), HasSubstr(file()));
  EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("process ", holder.pid(), " on ")));
  holder.Kill();
  EXPECT_TRUE(OpenError().ok()) << OpenError();
}

TEST_F(ProcessTest, TwoOfOneProcessAreRefusedToo) {
  auto journal = Open();
  EXPECT_EQ(OpenError().code(), absl::StatusCode::kUnavailable);
  journal.reset();
  EXPECT_TRUE(OpenError().ok());
}

// The lock is the process' alone: a child that it forked doesn't hold it when it is gone.
TEST_F(ProcessTest, ForkedProcessesDoNotKeepTheFile) {
  int until_closed[2];
  ASSERT_EQ(pipe2(until_closed, O_CLOEXEC), 0);
  Child holder([this, &until_closed](int to) {
    close(until_closed[1]);
    const auto file = JournalFile::Open(folder_, false);
    const bool forked = fork() == 0;
    Say(to, file.ok() ? 1 : 2);
    char none = 0;
    if (forked) _exit(read(until_closed[0], &none, 1) == 0 ? 0 : 1);
    pause();
  });
  ASSERT_EQ(holder.Next(), 1);
  ASSERT_EQ(holder.Next(), 1);
  holder.Kill();
  EXPECT_TRUE(OpenError().ok()) << OpenError();
  close(until_closed[0]);
  close(until_closed[1]);  // ends the forked one
}

// Writes generation after generation, and says which one is safe.
void WriteOnAndOn(const std::string& folder, int to) {
  const auto file = JournalFile::Open(folder, false);
  if (!file.ok()) return;
  JobRecord record = RunningRecord("job7", 400);
  for (unsigned char life = 1; life < 250; ++life) {
    record.life = life;
    record.nodes[0].settled = life;
    if (!(*file)->Put({.run_id = "job7", .record = record, .boot = "", .made = {}}).ok()) return;
    Say(to, life);
  }
}

TEST_F(ProcessTest, WhoeverIsKilledWhileItWritesLeavesAWholeRecord) {
  Rng rng(kSeed);
  uint64_t idle = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    SCOPED_TRACE(kill);
    std::filesystem::remove_all(folder_);
    uint64_t told = 0;
    {
      Child writer([this](int to) { WriteOnAndOn(folder_, to); });
      for (uint64_t i = 1 + rng.Below(4); i > 0; --i) told = writer.Next();
      ASSERT_GT(told, 0U);
      // Somewhere in the next write: after as many rounds of nothing.
      for (uint64_t i = rng.Below(1'000'000); i > 0; --i) idle ^= rng.Next();
      writer.Kill();
      while (const unsigned char more = writer.Next()) told = more;
    }
    const auto kept = Kept();
    ASSERT_TRUE(kept.ok()) << kept.status();
    ASSERT_EQ(kept->size(), 1U);
    const JobRecord& record = kept->at(0).record;
    EXPECT_GE(record.life, told);
    EXPECT_LE(record.life, told + 1);  // one may be written, and not confirmed
    EXPECT_EQ(record.nodes[0].settled, record.life);
  }
  EXPECT_NE(idle, 0U);
}

}  // namespace
}  // namespace ddprun::rendezvous
