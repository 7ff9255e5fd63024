// The values for --numa_binding are those that torch 2.11's torch/numa/binding.py gives; that it
// does is shown by tests/contract/binding_test.py, over many more machines.
#include "launcher/core/cpu_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// CPUs first to last.
CpuSet Cpus(uint32_t first, uint32_t last) {
  CpuSet cpus;
  for (uint32_t cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  return cpus;
}
CpuSet operator+(CpuSet a, const CpuSet& b) {
  a.insert(b.begin(), b.end());
  return a;
}

// Sockets of nodes of cache groups of cores, numbered as the kernel mostly does: first threads
// first.
CpuTopology Machine(uint32_t sockets, uint32_t nodes, uint32_t caches, uint32_t cores,
                    uint32_t threads) {
  CpuTopology topology;
  const uint32_t all_cores = sockets * nodes * caches * cores;
  for (uint32_t core = 0; core < all_cores; ++core) {
    const uint32_t cache = core / cores;
    const uint32_t node = cache / caches;
    for (uint32_t thread = 0; thread < threads; ++thread) {
      const uint32_t number = thread * all_cores + core;
      topology.cpus.push_back(
          {.number = number, .core = core, .package = node / nodes, .cache = cache * cores});
      topology.numa_nodes[node].insert(number);
      topology.allowed.insert(number);
    }
  }
  return topology;
}

std::vector<GpuPlace> GpusAt(const std::vector<int>& nodes) {
  std::vector<GpuPlace> gpus;
  for (const int node : nodes) gpus.push_back({.pci_id = "0000:3b:00.0", .numa_node = node});
  return gpus;
}

std::vector<std::string> Texts(const absl::StatusOr<std::vector<CpuSet>>& sets) {
  if (!sets.ok()) return {std::string(sets.status().message())};
  std::vector<std::string> texts;
  for (const CpuSet& cpus : *sets) texts.push_back(CpuSetText(cpus));
  return texts;
}

std::vector<std::string> Numa(NumaBinding mode, const CpuTopology& topology,
                              const std::vector<int>& nodes, uint32_t workers) {
  return Texts(PlanNumaBinding(mode, topology, GpusAt(nodes), workers));
}

TEST(CpuSetText, IsTheKernelsList) {
  EXPECT_EQ(CpuSetText({}), "");
  EXPECT_EQ(CpuSetText({7}), "7");
  EXPECT_EQ(CpuSetText({0, 1, 2, 4, 6, 7}), "0-2,4,6-7");
}

TEST(NumaBinding, Node) {
  // 2 sockets of 2 nodes of 4 cores with 2 threads.
  const CpuTopology topology = Machine(2, 2, 1, 4, 2);
  EXPECT_THAT(Numa(NumaBinding::kNode, topology, {0, 1, 2, 3}, 4),
              ElementsAre("0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"));
  EXPECT_THAT(Numa(NumaBinding::kNode, topology, {3, 3, -1}, 3),
              ElementsAre("12-15,28-31", "12-15,28-31", "0-3,16-19"));
}

TEST(NumaBinding, Socket) {
  const CpuTopology topology = Machine(2, 2, 1, 4, 2);
  EXPECT_THAT(Numa(NumaBinding::kSocket, topology, {0, 1, 2, 3}, 4),
              ElementsAre("0-7,16-23", "0-7,16-23", "8-15,24-31", "8-15,24-31"));
}

TEST(NumaBinding, ExclusiveGivesTheFirstGpusTheRemainder) {
  const CpuTopology topology = Machine(1, 1, 1, 8, 2);
  EXPECT_THAT(Numa(NumaBinding::kExclusive, topology, {0, 0, 0}, 3),
              ElementsAre("0-2,8-10", "3-5,11-13", "6-7,14-15"));
  // All visible GPUs count, whether a worker has them or not.
  EXPECT_THAT(Numa(NumaBinding::kExclusive, topology, {0, 0, 0}, 1), ElementsAre("0-2,8-10"));
  EXPECT_THAT(Numa(NumaBinding::kExclusive, topology, {0, 0, 0, 0, 0, 0, 0, 0, 0}, 1),
              ElementsAre(HasSubstr("only 8 physical cores at NUMA node 0 for its 9 GPUs")));
}

TEST(NumaBinding, ExclusiveCountsAllowedCoresByTheirLowestThread) {
  CpuTopology topology = Machine(1, 1, 1, 4, 2);
  topology.allowed = {1, 2, 4, 6};  // of cores 1, 2 (both threads: 2 and 6), and 0 (its second)
  EXPECT_THAT(Numa(NumaBinding::kExclusive, topology, {0, 0, 0}, 3), ElementsAre("4", "1", "2,6"));
}

TEST(NumaBinding, CoreComplexesGoRound) {
  const CpuTopology topology = Machine(1, 2, 2, 4, 1);
  EXPECT_THAT(Numa(NumaBinding::kCoreComplex, topology, {0, 1, 0, 0}, 4),
              ElementsAre("0-3", "8-11", "4-7", "0-3"));
}

TEST(NumaBinding, CoreComplexesWithMostCpusComeFirst) {
  CpuTopology topology = Machine(1, 1, 3, 4, 1);
  topology.allowed = Cpus(1, 11);
  EXPECT_THAT(Numa(NumaBinding::kCoreComplex, topology, {0, 0, 0}, 3),
              ElementsAre("4-7", "8-11", "1-3"));
}

TEST(NumaBinding, OnlyAllowedCpus) {
  CpuTopology topology = Machine(2, 2, 1, 4, 1);
  topology.allowed = Cpus(2, 9);
  EXPECT_THAT(Numa(NumaBinding::kNode, topology, {0, 1, 2}, 3), ElementsAre("2-3", "4-7", "8-9"));
  // Node 3 has none left and adds none; torch fails here.
  EXPECT_THAT(Numa(NumaBinding::kSocket, topology, {0, 2}, 2), ElementsAre("2-7", "8-9"));
}

TEST(NumaBinding, WhatCanNotBeDoneIsSaid) {
  CpuTopology topology = Machine(1, 2, 1, 2, 1);
  EXPECT_THAT(Numa(NumaBinding::kNode, topology, {0}, 2),
              ElementsAre(HasSubstr("there is 1 GPU for 2 workers")));
  EXPECT_THAT(Numa(NumaBinding::kNode, topology, {5}, 1),
              ElementsAre(HasSubstr("at NUMA node 5, which has no CPUs on this machine")));
  topology.cpus[0].cache.reset();
  EXPECT_THAT(Numa(NumaBinding::kCoreComplex, topology, {0}, 1),
              ElementsAre(HasSubstr("share a cache with CPU 0; give node or exclusive")));
  topology.allowed = {0, 1};
  EXPECT_THAT(Numa(NumaBinding::kNode, topology, {1}, 1),
              ElementsAre(HasSubstr("GPU 0 (0000:3b:00.0) is at NUMA node 1, but this process "
                                    "may use none of its CPUs (it may use 0-1)")));
}

TEST(CpuBinding, SharesCoresWithTheirThreads) {
  const CpuTopology topology = Machine(1, 1, 1, 4, 2);
  const auto cores = [&topology](uint32_t workers) {
    return Texts(PlanCpuBinding(CpuBinding::kCores, topology, workers));
  };
  EXPECT_THAT(cores(1), ElementsAre("0-7"));
  EXPECT_THAT(cores(2), ElementsAre("0-1,4-5", "2-3,6-7"));
  EXPECT_THAT(cores(3), ElementsAre("0-1,4-5", "2,6", "3,7"));
  EXPECT_THAT(cores(4), ElementsAre("0,4", "1,5", "2,6", "3,7"));
  EXPECT_THAT(cores(5),
              ElementsAre(HasSubstr("for each of the 5 workers, but this process may use 4;")));
}

TEST(CpuBinding, KeepsAWorkersCoresInOneNode) {
  // The kernel deals CPUs out to nodes in turn.
  CpuTopology topology = Machine(2, 1, 1, 4, 1);
  topology.numa_nodes = {{0, {0, 2, 4, 6}}, {1, {1, 3, 5, 7}}};
  EXPECT_THAT(Texts(PlanCpuBinding(CpuBinding::kCores, topology, 2)),
              ElementsAre("0,2,4,6", "1,3,5,7"));
  EXPECT_THAT(Texts(PlanCpuBinding(CpuBinding::kCores, topology, 4)),
              ElementsAre("0,2", "4,6", "1,3", "5,7"));
}

TEST(CpuBinding, SharesNodes) {
  const CpuTopology topology = Machine(2, 2, 1, 4, 1);
  const auto nodes = [&topology](uint32_t workers) {
    return Texts(PlanCpuBinding(CpuBinding::kNuma, topology, workers));
  };
  EXPECT_THAT(nodes(1), ElementsAre("0-15"));
  EXPECT_THAT(nodes(2), ElementsAre("0-7", "8-15"));
  EXPECT_THAT(nodes(3), ElementsAre("0-7", "8-11", "12-15"));
  EXPECT_THAT(nodes(4), ElementsAre("0-3", "4-7", "8-11", "12-15"));
  EXPECT_THAT(nodes(6), ElementsAre("0-3", "0-3", "4-7", "4-7", "8-11", "12-15"));
}

TEST(CpuBinding, OnlyAllowedCpus) {
  CpuTopology topology = Machine(1, 2, 1, 4, 2);
  topology.allowed = {2, 3, 10, 100};
  EXPECT_THAT(Texts(PlanCpuBinding(CpuBinding::kCores, topology, 2)), ElementsAre("2,10", "3"));
  EXPECT_THAT(Texts(PlanCpuBinding(CpuBinding::kNuma, topology, 2)),
              ElementsAre("2-3,10", "2-3,10"));
  topology.allowed = {100};
  EXPECT_THAT(Texts(PlanCpuBinding(CpuBinding::kCores, topology, 1)),
              ElementsAre(HasSubstr("none of the CPUs that this process may use (100)")));
}

TEST(CpuBinding, NodesOfMemoryDoNotCountTwice) {
  CpuTopology topology = Machine(1, 2, 1, 2, 1);
  topology.numa_nodes[2] = Cpus(0, 1);  // as hwloc shows high-bandwidth memory beside node 0
  topology.numa_nodes[3] = {};
  EXPECT_THAT(Texts(PlanCpuBinding(CpuBinding::kNuma, topology, 2)), ElementsAre("0-1", "2-3"));
  topology.numa_nodes.clear();
  EXPECT_THAT(Texts(PlanCpuBinding(CpuBinding::kNuma, topology, 2)), ElementsAre("0-3", "0-3"));
}

TEST(ThreadsForCores, CountsCoresAndThoseWhoShareThem) {
  const CpuTopology topology = Machine(1, 2, 1, 4, 2);
  EXPECT_THAT(ThreadsForCores(topology, {Cpus(0, 15)}), ElementsAre(8));
  EXPECT_THAT(ThreadsForCores(topology, {Cpus(0, 2) + Cpus(8, 10), Cpus(3, 3)}), ElementsAre(3, 1));
  const CpuSet node = Cpus(0, 3) + Cpus(8, 11);
  EXPECT_THAT(ThreadsForCores(topology, {node, node}), ElementsAre(2, 2));
  EXPECT_THAT(ThreadsForCores(topology, {node, node, node}), ElementsAre(1, 1, 1));
  // Three of 12 cores have three sharers: 3 × 1/3 + 9.
  EXPECT_THAT(ThreadsForCores(Machine(1, 1, 1, 12, 1), {Cpus(0, 11), Cpus(0, 2), Cpus(0, 2)}),
              ElementsAre(10, 1, 1));
  // Two workers on the threads of one core.
  EXPECT_THAT(ThreadsForCores(topology, {{0}, {8}}), ElementsAre(1, 1));
}

TEST(BindingNames, AreTheOptionsWords) {
  EXPECT_STREQ(NumaBindingName(NumaBinding::kCoreComplex), "core-complex");
  EXPECT_STREQ(NumaBindingName(NumaBinding::kNone), "none");
  EXPECT_STREQ(CpuBindingName(CpuBinding::kCores), "cores");
}

}  // namespace
}  // namespace ddprun::launcher
