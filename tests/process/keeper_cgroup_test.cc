// The workers' cgroup. Where this user can't make one the tests are skipped, with the reason.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "launcher/os/cgroup.h"
#include "launcher/os/files.h"
#include "tests/process/process_testing.h"

namespace ddprun::testing {
namespace {

using launcher::MakeWorkerCgroup;

// In a cgroup of this test's own: agents beside it clear up what agents have left, too.
class CgroupTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    outside_ = launcher::OwnCgroupFolder();
    inside_ = absl::StrCat(outside_, "/keeper_cgroup_test-", getpid());
    // Where it can't it stays outside, and MakeWorkerCgroup says why.
    if (!outside_.empty() && mkdir(inside_.c_str(), 0755) == 0) {
      launcher::EnterCgroup(inside_, getpid()).IgnoreError();
    }
  }
  static void TearDownTestSuite() {
    if (outside_.empty()) return;
    launcher::EnterCgroup(outside_, getpid()).IgnoreError();
    launcher::RemoveEmptyFolders(inside_);
  }

  void SetUp() override {
    const absl::StatusOr<std::string> made = MakeWorkerCgroup();
    if (!made.ok()) GTEST_SKIP() << made.status().message();
    path_ = *made;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  void TearDown() override {
    if (path_.empty()) return;
    EXPECT_TRUE(ReapAllChildren().empty()) << "something lives on";
    rmdir(path_.c_str());
  }

  std::set<pid_t> Members() const {
    std::ifstream file(path_ + "/cgroup.procs");
    return {std::istream_iterator<pid_t>(file), std::istream_iterator<pid_t>()};
  }

  std::string path_;

 private:
  static inline std::string outside_;
  static inline std::string inside_;
};

TEST_F(CgroupTest, WorkersAndWhatTheyForkAreInIt) {
  {
    KeeperUnderTest keeper(absl::Seconds(120), path_);
    PipeReader& out = keeper.Spawn(1, 0, Misbehave({"daemon-parent"}));
    const pid_t daemon = out.ReadyPid();
    const pid_t worker = out.ReadyPid();
    EXPECT_EQ(Members(), (std::set<pid_t>{worker, daemon}));
    EXPECT_EQ(keeper.Sweep(1), 1U);
    EXPECT_TRUE(Members().empty());
  }
  EXPECT_FALSE(std::filesystem::exists(path_)) << "the keeper removes it";
}

TEST_F(CgroupTest, AStormOfForksDiesInTheSweep) {
  KeeperUnderTest keeper(absl::Seconds(120), path_);
  PipeReader& out = keeper.Spawn(1, 0, Misbehave({"fork-storm", "1000000"}));
  out.ReadyPid();
  EXPECT_TRUE(keeper.Sweep(1).has_value());
  EXPECT_TRUE(out.EndsWithin());
  // The next generation lives in a cgroup again.
  const pid_t next = keeper.Spawn(2, 0, Misbehave({"live"})).ReadyPid();
  EXPECT_EQ(Members(), std::set<pid_t>{next});
  EXPECT_TRUE(keeper.Sweep(2).has_value());
}

TEST_F(CgroupTest, IsUsableAgainAfterAKill) {
  launcher::WorkerCgroup cgroup(path_);
  cgroup.Kill();
  cgroup.Renew();
  KeeperUnderTest keeper(absl::Seconds(120), path_);
  const pid_t worker = keeper.Spawn(1, 0, Misbehave({"live"})).ReadyPid();
  EXPECT_EQ(Members(), std::set<pid_t>{worker});
  EXPECT_TRUE(keeper.Sweep(1).has_value());
}

// An agent that is killed together with its keeper leaves what left its worker's session: the next
// agent clears it away, and until then it lives, which is the negative control.
TEST_F(CgroupTest, TheNextAgentKillsWhatAnEarlierOneLeft) {
  setenv("KEEPER_HOST_CGROUP", "1", 1);
  Program agent = StartProgram({HelperPath("keeper_host"), "120000", "daemon-parent"});
  unsetenv("KEEPER_HOST_CGROUP");
  pid_t keeper = 0;
  ASSERT_TRUE(absl::SimpleAtoi(agent.out.Line().value_or("").substr(7), &keeper));
  const pid_t daemon = agent.out.ReadyPid();
  const pid_t worker = agent.out.ReadyPid();
  // The agent is stopped so that it can't act between the two kills. A stopped keeper could: it
  // goes on at its agent's death (PR_SET_PDEATHSIG).
  kill(agent.pid, SIGSTOP);
  EXPECT_EQ(waitpid(agent.pid, nullptr, WUNTRACED), agent.pid);
  kill(keeper, SIGKILL);
  EXPECT_TRUE(DiesWithin(keeper));
  kill(agent.pid, SIGKILL);
  EXPECT_TRUE(DiesWithin(worker));
  EXPECT_EQ(ReapAllChildren(absl::Milliseconds(100)), std::vector<pid_t>{daemon});

  rmdir(path_.c_str());
  ASSERT_TRUE(MakeWorkerCgroup().ok());
  EXPECT_TRUE(DiesWithin(daemon));
}

// A pid says nothing in another PID namespace: the claim does.
TEST_F(CgroupTest, WhatAnotherPidNamespaceHasLeftIsRemoved) {
  const std::string parent = std::filesystem::path(path_).parent_path();
  const std::string left = absl::StrCat(parent, "/ddprun-1-", getpid());
  const std::string claimed = absl::StrCat(parent, "/ddprun-2-", getpid());
  const std::string filled = absl::StrCat(parent, "/ddprun-3-", getpid());
  const std::string unit = absl::StrCat(parent, "/ddprun-daemon", getpid(), ".service");
  for (const std::string& path : {left, claimed, filled, unit}) mkdir(path.c_str(), 0755);
  Fd claim = launcher::ClaimCgroup(claimed);
  Program program = StartProgram(Misbehave({"live"}));
  const absl::Status entered = launcher::EnterCgroup(filled, program.out.ReadyPid());
  EXPECT_TRUE(entered.ok()) << entered;

  rmdir(path_.c_str());
  ASSERT_TRUE(MakeWorkerCgroup().ok());
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(claimed));
  EXPECT_TRUE(std::filesystem::exists(filled));
  EXPECT_EQ(rmdir(unit.c_str()), 0) << "somebody else's was removed";

  claim.Reset();
  kill(program.pid, SIGKILL);
  EXPECT_TRUE(ReapAllChildren().empty());
  rmdir(path_.c_str());
  ASSERT_TRUE(MakeWorkerCgroup().ok());
  EXPECT_FALSE(std::filesystem::exists(claimed));
  EXPECT_FALSE(std::filesystem::exists(filled));
}

TEST(NoCgroupTest, SaysWhyThereIsNone) {
  setenv("SLURM_JOB_ID", "7", 1);
  EXPECT_EQ(MakeWorkerCgroup().status().message(), "Slurm has cgroups of its own");
  unsetenv("SLURM_JOB_ID");
  EXPECT_EQ(MakeWorkerCgroup("/nonexistent").status().message(),
            "no cgroup2 file system is mounted");
}

}  // namespace
}  // namespace ddprun::testing
