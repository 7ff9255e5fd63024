#include "tools/doctor/machine_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

class MachineProbeTest : public ::testing::Test {
 protected:
  testing::TempTree root_;
};

TEST_F(MachineProbeTest, InterfacesAreHardwareOrHaveAddresses) {
  const auto write = [this](const std::string& name, const char* file, const char* text) {
    root_.Write("sys/class/net/" + name + "/" + file, text);
  };
  write("ethx0", "operstate", "up\n");
  write("ethx0", "speed", "25000\n");
  write("ethx0", "mtu", "9000\n");
  write("ethx0", "type", "1\n");
  write("ethx0", "device/vendor", "0x15b3\n");
  write("ethx1", "operstate", "down\n");
  write("ethx1", "speed", "-1\n");
  write("ethx1", "device/vendor", "0x15b3\n");
  write("vethx", "operstate", "up\n");  // a container's end of a cable
  const std::vector<InterfaceFacts> interfaces = ProbeInterfaces(root_.path());
  ASSERT_EQ(interfaces.size(), 2U);
  EXPECT_EQ(interfaces[0].name, "ethx0");
  EXPECT_TRUE(interfaces[0].up);
  EXPECT_FALSE(interfaces[0].loopback);
  EXPECT_EQ(interfaces[0].speed_mbit, 25000U);
  EXPECT_EQ(interfaces[0].mtu, 9000U);
  EXPECT_FALSE(interfaces[1].up);
  EXPECT_EQ(interfaces[1].speed_mbit, std::nullopt);
}

TEST_F(MachineProbeTest, ImportsThatStandOutAreKeptByScript) {
  root_.Write("warm/train.py-0011", "signature x\nmodule torch\ntook torch 9100\nrefused a b c\n");
  root_.Write("warm/plain.py-0022", "signature x\nmodule torch\n");
  root_.Write("warm/damaged.py-0033", "nonsense\n");
  const std::vector<ImportFacts> imports = ProbeImports(root_.path() + "/warm");
  ASSERT_EQ(imports.size(), 1U);
  EXPECT_EQ(imports[0].script, "train.py");
  ASSERT_EQ(imports[0].modules.size(), 2U);
  EXPECT_EQ(imports[0].modules[0].why, "b c");
  EXPECT_EQ(imports[0].modules[1].milliseconds, 9100U);
  EXPECT_TRUE(ProbeImports("").empty());
}

TEST_F(MachineProbeTest, ThisMachineHasALoopback) {
  root_.Write("sys/class/net/lo/operstate", "unknown\n");
  root_.Write("sys/class/net/lo/type", "772\n");
  const std::vector<InterfaceFacts> interfaces = ProbeInterfaces(root_.path());
  ASSERT_EQ(interfaces.size(), 1U);
  EXPECT_TRUE(interfaces[0].up);
  EXPECT_TRUE(interfaces[0].loopback);
  EXPECT_THAT(interfaces[0].addresses, ::testing::Contains("127.0.0.1"));
}

TEST_F(MachineProbeTest, RdmaPorts) {
  root_.Write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  root_.Write("sys/class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
  root_.Write("sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
  const std::vector<RdmaPort> ports = ProbeRdmaPorts(root_.path());
  ASSERT_EQ(ports.size(), 1U);
  EXPECT_EQ(ports[0].device, "mlx5_0");
  EXPECT_EQ(ports[0].state, "ACTIVE");
  EXPECT_EQ(ports[0].rate, "200 Gb/sec (4X HDR)");
  EXPECT_EQ(ports[0].link_layer, "InfiniBand");
}

TEST_F(MachineProbeTest, MemoryLimitsOfEveryLevel) {
  const auto limit = [this] { return CgroupMemoryLimit(root_.path()); };
  EXPECT_EQ(limit(), std::nullopt);
  root_.Write("proc/self/cgroup", "0::/pod/job\n");
  EXPECT_EQ(limit(), std::nullopt);
  root_.Write("sys/fs/cgroup/pod/job/memory.max", "max\n");
  EXPECT_EQ(limit(), std::nullopt);
  root_.Write("sys/fs/cgroup/pod/memory.max", "4096\n");
  EXPECT_EQ(limit(), 4096U);
  root_.Write("sys/fs/cgroup/pod/job/memory.max", "8192\n");
  EXPECT_EQ(limit(), 4096U);
  // A container shows its own group as the root.
  root_.Write("sys/fs/cgroup/memory.max", "1024\n");
  EXPECT_EQ(limit(), 1024U);
}

TEST_F(MachineProbeTest, MemoryLimitOfVersion1) {
  root_.Write("proc/self/cgroup", "5:memory:/docker/x\n1:name=systemd:/\n0::/\n");
  root_.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(CgroupMemoryLimit(root_.path()), std::nullopt);
  root_.Write("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "1048576\n");
  EXPECT_EQ(CgroupMemoryLimit(root_.path()), 1048576U);
}

TEST_F(MachineProbeTest, WithoutTheLibraryTheKernelIsHeard) {
  root_.Write("proc/driver/nvidia/version",
              "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat\n");
  root_.Write("proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: x\n");
  const GpuInventory inventory = TakeGpuInventory(root_.path());
  EXPECT_EQ(inventory.driver.gpus_of_kernel, 1U);
  // A machine that has a driver says its own version.
  if (!inventory.driver.why_not.empty()) {
    EXPECT_EQ(inventory.driver.version, "535.104.05");
    EXPECT_TRUE(inventory.gpus.empty());
  }
}

TEST_F(MachineProbeTest, AWholeMachine) {
  root_.Write("etc/os-release", "PRETTY_NAME=\"A System\"\n");
  root_.Write("proc/sys/kernel/osrelease", "6.1.0-test\n");
  root_.Write("proc/meminfo", "MemTotal: 1024 kB\n");
  root_.Write("dev/shm/x", "");
  root_.Write(".dockerenv", "");
  const MachineFacts facts = ProbeMachine({.root = root_.path(), .python = ""});
  EXPECT_EQ(facts.versions.system, "A System");
  EXPECT_EQ(facts.versions.kernel, "6.1.0-test");
  EXPECT_FALSE(facts.versions.glibc.empty());
  EXPECT_EQ(facts.memory.total, 1024U * 1024);
  EXPECT_EQ(facts.container, "docker");
  EXPECT_TRUE(facts.shared_memory.has_value());
  EXPECT_FALSE(facts.limits.has_value());
  EXPECT_FALSE(facts.host.name.empty());
  EXPECT_GE(facts.cpu.usable, 1U);
  EXPECT_EQ(facts.python.path, "");
}

TEST_F(MachineProbeTest, APythonThatFails) {
  const MachineFacts facts = ProbeMachine({.root = root_.path(), .python = "/bin/false"});
  EXPECT_THAT(facts.python.why_not, HasSubstr("'/bin/false' failed"));
  EXPECT_EQ(facts.container, "");
  EXPECT_FALSE(facts.shared_memory.has_value());
}

}  // namespace
}  // namespace ddprun::launcher
