#include "launcher/os/stack_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

class ProcessProbeTest : public ::testing::Test {
 protected:
  void AddProcess(int pid, int parent, char state, int user_ticks, int child_ticks = 0) {
    tree_.Write(absl::StrCat("proc/", pid, "/stat"),
                absl::StrCat(pid, " (a ) name (x)) ", std::string(1, state), " ", parent,
                             " 1 1 0 -1 0 0 0 0 0 ", user_ticks, " 1 ", child_ticks, " 0 20 0 1"));
  }
  testing::TempTree tree_;
};

TEST_F(ProcessProbeTest, SumsATreeAndNothingElse) {
  AddProcess(10, 1, 'S', 100);
  AddProcess(11, 10, 'R', 200, 50);  // its child
  AddProcess(12, 11, 'S', 300);      // and grandchild
  AddProcess(20, 1, 'T', 7);
  AddProcess(30, 1, 'R', 1000);
  tree_.Write("proc/10/io", "rchar: 10\nwchar: 5\nsyscr: 9\nread_bytes: 77\n");
  tree_.Write("proc/10/schedstat", "123456 789 42\n");
  tree_.Write("proc/12/io", "rchar: 1\nwchar: 2\n");
  const std::vector<WorkerVital> vitals = ProcessProbe(tree_.path()).Look({10, 20, 0, 99});
  ASSERT_EQ(vitals.size(), 4U);
  EXPECT_TRUE(vitals[0].alive);
  EXPECT_EQ(vitals[0].state, 'S');
  const double tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_NEAR(absl::ToDoubleSeconds(vitals[0].cpu), (100 + 1 + 200 + 1 + 50 + 300 + 1) * tick,
              1e-6);
  EXPECT_EQ(vitals[0].bytes, 18U);
  EXPECT_EQ(vitals[0].turns, 42U);
  EXPECT_EQ(vitals[1].state, 'T');
  EXPECT_FALSE(vitals[2].alive);
  EXPECT_FALSE(vitals[3].alive);
}

TEST_F(ProcessProbeTest, SaysWhereItWaits) {
  AddProcess(10, 1, 'S', 0);
  tree_.Write("proc/10/stack", "[<0>] pipe_read+0x31f/0x4b0\n[<0>] vfs_read+0x17/0x20\n");
  tree_.Write("proc/10/syscall", "0 0x3 0x7f 0x20");
  AddProcess(11, 1, 'S', 0);  // of another user than root: no stack
  tree_.Write("proc/11/wchan", "futex_wait_queue");
  AddProcess(12, 1, 'R', 0);
  tree_.Write("proc/12/wchan", "0");
  const std::vector<WorkerVital> vitals = ProcessProbe(tree_.path()).Look({10, 11, 12});
  EXPECT_EQ(vitals[0].where, "pipe_read");
  EXPECT_EQ(vitals[0].stack, "pipe_read < vfs_read\n0 0x3 0x7f 0x20");
  EXPECT_EQ(vitals[1].where, "futex_wait_queue");
  EXPECT_EQ(vitals[2].where, "");
}

TEST_F(ProcessProbeTest, ZombiesAndGarbageAreNotAlive) {
  AddProcess(10, 1, 'Z', 0);
  tree_.Write("proc/11/stat", "11 (no end");
  tree_.Write("proc/12/stat", "12 (x) S 1 1");
  tree_.Write("proc/13/stat", "13 (x) S 13 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1");  // its own parent
  const std::vector<WorkerVital> vitals = ProcessProbe(tree_.path()).Look({10, 11, 12, 14});
  for (const WorkerVital& vital : vitals) EXPECT_FALSE(vital.alive);
  EXPECT_FALSE(ProcessProbe("/nowhere").Look({10}).front().alive);
}

TEST_F(ProcessProbeTest, LooksAtThisMachine) {
  const WorkerVital self = ProcessProbe().Look({getpid()}).front();
  EXPECT_TRUE(self.alive);
  EXPECT_EQ(self.state, 'R');
}

TEST(KernelStackTextTest, KeepsTheFunctions) {
  EXPECT_EQ(KernelStackText("[<0>] a_b+0x1/0x2\n[<0>] c+0x3/0x4\nnonsense\n"), "a_b < c");
  EXPECT_EQ(KernelStackText(""), "");
}

}  // namespace
}  // namespace ddprun::launcher
