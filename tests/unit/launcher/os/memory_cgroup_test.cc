#include "launcher/os/cgroup.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

class OwnMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override { Machine(/*available_kib=*/800); }
  void Machine(int available_kib) {
    tree_.Write("proc/meminfo", absl::StrCat("MemTotal:        1000 kB\nMemFree:   1 kB\n",
                                             "MemAvailable:    ", available_kib, " kB\n"));
  }
  // A cgroup of version 2, in KiB.
  void Cgroup(const std::string& folder, const std::string& limit, int used, int cache) {
    const std::string at = absl::StrCat("sys/fs/cgroup/", folder, "/memory.");
    tree_.Write(at + "events", "oom 0\noom_kill 0\n");
    tree_.Write(at + "max", limit);
    tree_.Write(at + "current", absl::StrCat(used << 10, "\n"));
    tree_.Write(at + "stat", absl::StrCat("anon 1\ninactive_file ", (cache / 2) << 10,
                                          "\nactive_file ", (cache / 2) << 10, "\n"));
  }
  Memory Own() const { return OwnMemory(tree_.path()).value_or(Memory{}); }

  testing::TempTree tree_;
};

TEST_F(OwnMemoryTest, IsTheMachinesWhereThereIsNoCgroup) {
  EXPECT_EQ(Own().total, 1000U << 10);
  EXPECT_EQ(Own().available, 800U << 10);
  EXPECT_FALSE(Own().of_cgroup);
}

TEST_F(OwnMemoryTest, IsWhatTheCgroupsLimitLeaves) {
  tree_.Write("proc/self/cgroup", "0::/job\n");
  Cgroup("job", absl::StrCat(100 << 10, "\n"), /*used=*/90, /*cache=*/20);
  EXPECT_TRUE(Own().of_cgroup);
  EXPECT_EQ(Own().total, 100U << 10);
  EXPECT_EQ(Own().available, 30U << 10) << "the page cache can go";
  // Negative controls: without a limit, and where the machine has less left.
  Cgroup("job", "max\n", 90, 20);
  EXPECT_FALSE(Own().of_cgroup);
  Cgroup("job", absl::StrCat(100 << 10, "\n"), 90, 20);
  Machine(/*available_kib=*/200);
  EXPECT_FALSE(Own().of_cgroup);
}

TEST_F(OwnMemoryTest, CountsTheLimitOfACgroupAbove) {
  tree_.Write("proc/self/cgroup", "0::/pod/container\n");
  Cgroup("pod", absl::StrCat(100 << 10, "\n"), 95, 0);
  Cgroup("pod/container", "max\n", 10, 0);
  EXPECT_EQ(Own().available, 5U << 10);
}

TEST_F(OwnMemoryTest, UsesMoreThanItsLimitForAMoment) {
  tree_.Write("proc/self/cgroup", "0::/job\n");
  Cgroup("job", absl::StrCat(100 << 10, "\n"), 120, 0);
  EXPECT_EQ(Own().available, 0U);
}

TEST_F(OwnMemoryTest, TheOldCgroupsTellTheSame) {
  tree_.Write("proc/self/cgroup", "5:devices:/\n4:memory:/job\n0::/\n");
  tree_.Write("sys/fs/cgroup/memory/job/memory.oom_control", "under_oom 0\noom_kill 0\n");
  tree_.Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "102400\n");
  tree_.Write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "92160\n");
  tree_.Write("sys/fs/cgroup/memory/job/memory.stat",
              "active_file 4096\ntotal_inactive_file 10240\ntotal_active_file 10240\n");
  tree_.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_TRUE(Own().of_cgroup);
  EXPECT_EQ(Own().available, 30720U);
}

TEST_F(OwnMemoryTest, NothingIsToldWithoutMeminfo) {
  EXPECT_FALSE(OwnMemory("/nowhere").has_value());
  tree_.Write("proc/meminfo", "MemTotal: many kB\n");
  EXPECT_FALSE(OwnMemory(tree_.path()).has_value());
}

}  // namespace
}  // namespace ddprun::launcher
