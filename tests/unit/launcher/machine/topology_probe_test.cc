#include "launcher/machine/topology_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// hwloc's own way to show a program another machine.
class CpuTopologyTest : public ::testing::Test {
 protected:
  ~CpuTopologyTest() override { unsetenv("HWLOC_SYNTHETIC"); }
  static CpuTopology Probe(const char* machine) {
    setenv("HWLOC_SYNTHETIC", machine, 1);
    const absl::StatusOr<CpuTopology> topology = ProbeCpuTopology();
    EXPECT_TRUE(topology.ok()) << topology.status();
    return topology.value_or(CpuTopology());
  }
};

TEST_F(CpuTopologyTest, TwoSocketsOfTwoNodesWithSmt) {
  // CPUs 0-7 are the cores' first threads, 8-15 the second ones.
  const CpuTopology topology =
      Probe("pack:2 numa:2 l3:1 core:2 pu:2(indexes=0,8,1,9,2,10,3,11,4,12,5,13,6,14,7,15)");
  ASSERT_EQ(topology.cpus.size(), 16U);
  for (const CpuTopology::Cpu& cpu : topology.cpus) {
    const uint32_t core = cpu.number % 8;
    EXPECT_EQ(cpu.core, core);
    EXPECT_EQ(cpu.package, core / 4);
    EXPECT_EQ(cpu.cache, core / 2 * 2);
  }
  EXPECT_EQ(topology.numa_nodes.size(), 4U);
  EXPECT_EQ(topology.numa_nodes.at(2), (CpuSet{4, 5, 12, 13}));
}

TEST_F(CpuTopologyTest, CoreComplexes) {
  const CpuTopology topology = Probe("pack:1 numa:1 l3:3 l2:2 core:1 pu:1");
  std::vector<uint32_t> caches;
  for (const CpuTopology::Cpu& cpu : topology.cpus) caches.push_back(cpu.cache.value_or(99));
  EXPECT_THAT(caches, ElementsAre(0, 0, 2, 2, 4, 4));
}

TEST_F(CpuTopologyTest, InstructionCachesDoNotCount) {
  EXPECT_EQ(Probe("pack:1 l2:1 l1d:2 l1i:1 core:1 pu:1").cpus[1].cache, 0U);
  EXPECT_EQ(Probe("pack:1 l1i:1 core:2 pu:1").cpus[1].cache, std::nullopt);
}

TEST_F(CpuTopologyTest, WhatAMachineDoesNotSay) {
  const CpuTopology topology = Probe("pu:3");
  ASSERT_EQ(topology.cpus.size(), 3U);
  EXPECT_EQ(topology.cpus[2].core, 2U);
  EXPECT_EQ(topology.cpus[2].package, 0U);
  EXPECT_EQ(topology.cpus[2].cache, std::nullopt);
  EXPECT_EQ(topology.numa_nodes.at(0), (CpuSet{0, 1, 2}));
}

TEST(CpuTopology, OfThisMachineHasTheCpusThatWeMayUse) {
  const absl::StatusOr<CpuTopology> topology = ProbeCpuTopology();
  ASSERT_TRUE(topology.ok()) << topology.status();
  CpuSet cpus;
  for (const CpuTopology::Cpu& cpu : topology->cpus) EXPECT_TRUE(cpus.insert(cpu.number).second);
  EXPECT_FALSE(topology->allowed.empty());
  for (const uint32_t cpu : topology->allowed) EXPECT_TRUE(cpus.contains(cpu)) << cpu;
  EXPECT_FALSE(topology->numa_nodes.empty());
}

class GpusTest : public ::testing::Test {
 protected:
  void Add(const std::string& id, const std::string& node, const std::string& uuid = "GPU-none",
           const std::string& model = "NVIDIA H100") {
    root_.Write("proc/driver/nvidia/gpus/" + id + "/information",
                "Model: \t\t " + model + "\nIRQ:   \t\t 44\nGPU UUID: \t " + uuid + "\n");
    if (!node.empty()) root_.Write("sys/bus/pci/devices/" + id + "/numa_node", node + "\n");
  }
  // "id@node" of each.
  std::vector<std::string> Probe(const std::optional<std::vector<std::string>>& visible) {
    const absl::StatusOr<std::vector<GpuPlace>> gpus = ProbeGpus(visible, root_.path());
    if (!gpus.ok()) return {std::string(gpus.status().message())};
    std::vector<std::string> texts;
    for (const GpuPlace& gpu : *gpus) {
      texts.push_back(gpu.pci_id + "@" + std::to_string(gpu.numa_node));
    }
    return texts;
  }

  testing::TempTree root_;
};

TEST_F(GpusTest, AreInTheOrderOfTheirPciIds) {
  EXPECT_THAT(Probe(std::nullopt), ElementsAre());  // no driver
  Add("0000:c1:00.0", "1");
  Add("10000:01:00.0", "3");
  Add("0000:1b:00.0", "0");
  Add("0001:02:00.0", "-1");
  EXPECT_THAT(Probe(std::nullopt), ElementsAre("0000:1b:00.0@0", "0000:c1:00.0@1",
                                               "0001:02:00.0@-1", "10000:01:00.0@3"));
  EXPECT_EQ((*ProbeGpus(std::nullopt, root_.path()))[0].model, "NVIDIA H100");
}

TEST_F(GpusTest, ThatAreVisible) {
  Add("0000:1b:00.0", "0", "GPU-aa00-11");
  Add("0000:1c:00.0", "1", "GPU-aa11-22");
  EXPECT_THAT(Probe({{"1", "0"}}), ElementsAre("0000:1c:00.0@1", "0000:1b:00.0@0"));
  EXPECT_THAT(Probe({{"GPU-aa11", "0"}}), ElementsAre("0000:1c:00.0@1", "0000:1b:00.0@0"));
  EXPECT_THAT(Probe({{"MIG-GPU-aa11-22/3/0"}}), ElementsAre("0000:1c:00.0@1"));
  // Up to the first that names none.
  EXPECT_THAT(Probe({{"1", "2", "0"}}), ElementsAre("0000:1c:00.0@1"));
  EXPECT_THAT(Probe({{"-1", "0"}}), ElementsAre());
  EXPECT_THAT(Probe({{""}}), ElementsAre());
}

TEST_F(GpusTest, ThatCanNotBeFound) {
  Add("0000:1b:00.0", "0", "GPU-aa00-11");
  EXPECT_THAT(Probe({{"GPU-bb"}}),
              ElementsAre(HasSubstr("where 'GPU-bb' of CUDA_VISIBLE_DEVICES")));
  EXPECT_THAT(Probe({{"MIG-aa00-11"}}), ElementsAre(HasSubstr("list GPUs by number")));
  Add("0000:1c:00.0", "");
  EXPECT_THAT(Probe(std::nullopt), ElementsAre(HasSubstr("the NUMA node of GPU 0000:1c:00.0")));
  Add("0000:1c:00.0", "rubbish");
  EXPECT_THAT(Probe(std::nullopt), ElementsAre(HasSubstr("the NUMA node of GPU 0000:1c:00.0")));
}

}  // namespace
}  // namespace ddprun::launcher
