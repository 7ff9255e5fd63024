#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>

#include "launcher/machine/host_probe.h"
#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

class CpuProbeTest : public ::testing::Test {
 protected:
  std::optional<uint32_t> Quota() const { return CgroupCpuQuota(root_.path()); }

  void WriteV1(const std::string& directory, const std::string& quota) {
    root_.Write("sys/fs/cgroup/" + directory + "/cpu.cfs_quota_us", quota + "\n");
    root_.Write("sys/fs/cgroup/" + directory + "/cpu.cfs_period_us", "100000\n");
  }

  testing::TempTree root_;
};

TEST_F(CpuProbeTest, NoCgroupFilesMeanNoLimit) { EXPECT_EQ(Quota(), std::nullopt); }

TEST_F(CpuProbeTest, ReadsV2RoundedUp) {
  root_.Write("proc/self/cgroup", "0::/job\n");
  root_.Write("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(Quota(), 2U);
  root_.Write("sys/fs/cgroup/job/cpu.max", "200000 100000\n");
  EXPECT_EQ(Quota(), 2U);
  root_.Write("sys/fs/cgroup/job/cpu.max", "1000 100000\n");
  EXPECT_EQ(Quota(), 1U);
  root_.Write("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota(), std::nullopt);
}

TEST_F(CpuProbeTest, EveryLevelLimits) {
  root_.Write("proc/self/cgroup", "0::/pod/job\n");
  root_.Write("sys/fs/cgroup/pod/job/cpu.max", "800000 100000\n");
  root_.Write("sys/fs/cgroup/pod/cpu.max", "300000 100000\n");
  EXPECT_EQ(Quota(), 3U);
}

TEST_F(CpuProbeTest, AContainerShowsItsOwnGroupAsTheRoot) {
  root_.Write("proc/self/cgroup", "0::/kubepods/pod7/unseen\n");
  root_.Write("sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(Quota(), 4U);
}

TEST_F(CpuProbeTest, ReadsV1) {
  root_.Write("proc/self/cgroup", "3:cpuset:/\n2:cpu,cpuacct:/docker/x\n1:name=systemd:/\n");
  WriteV1("cpu,cpuacct/docker/x", "250000");
  EXPECT_EQ(Quota(), 3U);
  WriteV1("cpu,cpuacct/docker/x", "-1");
  EXPECT_EQ(Quota(), std::nullopt);
}

TEST_F(CpuProbeTest, ReadsV1BehindItsShortName) {
  root_.Write("proc/self/cgroup", "2:cpu,cpuacct:/x\n");
  WriteV1("cpu", "100000");
  EXPECT_EQ(Quota(), 1U);
}

TEST_F(CpuProbeTest, RubbishIsNoLimit) {
  root_.Write("proc/self/cgroup", "\n::\nx\n0::/\n");
  for (const char* text : {"", "\n", "-5 100000\n", "1 0\n", "abc def\n", "1 2 3\n"}) {
    root_.Write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(Quota(), std::nullopt) << text;
  }
}

TEST_F(CpuProbeTest, CountsWhatThisProcessMayUse) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  const auto all = static_cast<uint32_t>(CPU_COUNT(&before));
  EXPECT_EQ(UsableCpuCount(root_.path()), all);

  root_.Write("proc/self/cgroup", "0::/\n");
  root_.Write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(UsableCpuCount(root_.path()), 1U);
  root_.Write("sys/fs/cgroup/cpu.max", "max 100000\n");

  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(UsableCpuCount(root_.path()), 1U);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST_F(CpuProbeTest, CountsDevicesOfTheDriver) {
  EXPECT_EQ(CudaDeviceCount(nullptr, root_.path()), 0U);
  EXPECT_EQ(CudaDeviceCount("0,1", root_.path()), 0U);  // no driver
  root_.Write("proc/driver/nvidia/gpus/0000:01:00.0/information", "");
  root_.Write("proc/driver/nvidia/gpus/0000:02:00.0/information", "");
  EXPECT_EQ(CudaDeviceCount(nullptr, root_.path()), 2U);
}

TEST_F(CpuProbeTest, GpusThatTheKernelDoesNotList) {
  EXPECT_FALSE(HasUnlistedGpus(root_.path()));
  root_.Write("dev/dxg", "");  // WSL 2
  EXPECT_TRUE(HasUnlistedGpus(root_.path()));
  root_.Write("dev/nvidiactl", "");  // LXD
  EXPECT_TRUE(HasUnlistedGpus(root_.path()));
  root_.Write("proc/driver/nvidia/gpus/0000:01:00.0/information", "");
  EXPECT_FALSE(HasUnlistedGpus(root_.path()));
}

TEST_F(CpuProbeTest, CountsVisibleDevicesAsCudaDoes) {
  root_.Write("proc/driver/nvidia/gpus/0000:01:00.0/information", "");
  root_.Write("proc/driver/nvidia/gpus/0000:02:00.0/information", "");
  const auto count = [&](const char* visible) { return CudaDeviceCount(visible, root_.path()); };
  EXPECT_EQ(count(""), 0U);
  EXPECT_EQ(count("1"), 1U);
  EXPECT_EQ(count("1,0"), 2U);
  EXPECT_EQ(count(" 0 , 1 "), 2U);
  EXPECT_EQ(count("0,-1,1"), 1U);
  EXPECT_EQ(count("-1"), 0U);
  EXPECT_EQ(count("0,7"), 1U);
  EXPECT_EQ(count("NoDevFiles"), 0U);
  EXPECT_EQ(count("GPU-8932f937,MIG-2f1a"), 2U);
}

}  // namespace
}  // namespace ddprun::launcher
