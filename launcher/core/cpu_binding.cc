#include "launcher/core/cpu_binding.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

using Groups = std::map<uint32_t, CpuSet>;  // core (or cache) -> its CPUs that may be used

absl::Status CannotBind(absl::string_view why) { return absl::FailedPreconditionError(why); }

CpuSet Common(const CpuSet& a, const CpuSet& b) {
  CpuSet common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(),
                        std::inserter(common, common.end()));
  return common;
}

// The CPUs of `topology` that are in `cpus`, by physical core.
Groups CoresOf(const CpuTopology& topology, const CpuSet& cpus) {
  Groups cores;
  for (const CpuTopology::Cpu& cpu : topology.cpus) {
    if (cpus.contains(cpu.number)) cores[cpu.core].insert(cpu.number);
  }
  return cores;
}

// Part `index` of `count` items divided into `parts`: the first parts have one more where it
// doesn't come out even. Returns: the first item and the one behind the last.
std::pair<size_t, size_t> Share(size_t count, size_t parts, size_t index) {
  const size_t each = count / parts;
  const size_t more = count % parts;
  const size_t begin = index * each + std::min(index, more);
  return {begin, begin + each + (index < more ? 1 : 0)};
}

CpuSet Union(const std::vector<CpuSet>& sets, std::pair<size_t, size_t> range) {
  CpuSet all;
  for (size_t i = range.first; i < range.second; ++i) all.insert(sets[i].begin(), sets[i].end());
  return all;
}

std::vector<CpuSet> SetsOf(const Groups& groups) {
  std::vector<CpuSet> sets;
  for (const auto& [key, cpus] : groups) sets.push_back(cpus);
  return sets;
}

// The CPUs of a node that this process may use; empty also for an unknown node.
CpuSet AllowedOf(const CpuTopology& topology, uint32_t node) {
  const auto found = topology.numa_nodes.find(node);
  return found == topology.numa_nodes.end() ? CpuSet() : Common(found->second, topology.allowed);
}

uint32_t PackageOf(const CpuTopology& topology, uint32_t number) {
  for (const CpuTopology::Cpu& cpu : topology.cpus) {
    if (cpu.number == number) return cpu.package;
  }
  return 0;
}

uint32_t NodeOf(const GpuPlace& gpu) { return static_cast<uint32_t>(std::max(gpu.numa_node, 0)); }

// A GPU with its node, and its place among the GPUs of that node.
struct Near {
  uint32_t gpu = 0;
  uint32_t node = 0;
  CpuSet cpus;       // of the node
  size_t index = 0;  // among the node's GPUs
  size_t gpus = 0;   // of the node
};

absl::StatusOr<Near> Look(const CpuTopology& topology, const std::vector<GpuPlace>& gpus,
                          uint32_t gpu) {
  Near near{.gpu = gpu, .node = NodeOf(gpus[gpu])};
  near.cpus = AllowedOf(topology, near.node);
  for (uint32_t other = 0; other < gpus.size(); ++other) {
    if (NodeOf(gpus[other]) != near.node) continue;
    ++near.gpus;
    if (other < gpu) ++near.index;
  }
  if (!near.cpus.empty()) return near;
  return CannotBind(absl::StrCat(
      "GPU ", gpu, " (", gpus[gpu].pci_id, ") is at NUMA node ", near.node,
      topology.numa_nodes.contains(near.node) ? ", but this process may use none of its CPUs ("
                                              : ", which has no CPUs on this machine (",
      "it may use ", CpuSetText(topology.allowed),
      "); start ddprun with a wider CPU affinity or cpuset, or leave the option out"));
}

CpuSet Socket(const CpuTopology& topology, const Near& near) {
  const uint32_t package = PackageOf(topology, *near.cpus.begin());
  CpuSet all;
  for (const auto& [node, cpus] : topology.numa_nodes) {
    const CpuSet allowed = AllowedOf(topology, node);
    if (allowed.empty() || PackageOf(topology, *allowed.begin()) != package) continue;
    all.insert(allowed.begin(), allowed.end());
  }
  return all;
}

absl::StatusOr<CpuSet> Exclusive(const CpuTopology& topology, const Near& near) {
  const std::vector<CpuSet> cores = SetsOf(CoresOf(topology, near.cpus));
  if (cores.size() < near.gpus) {
    return CannotBind(absl::StrCat("there are only ", CountText(cores.size(), "physical core"),
                                   " at NUMA node ", near.node, " for its ",
                                   CountText(near.gpus, "GPU"),
                                   ", so they can't have some each; give node, which shares "
                                   "them, or use fewer GPUs"));
  }
  return Union(cores, Share(cores.size(), near.gpus, near.index));
}

absl::StatusOr<CpuSet> CoreComplex(const CpuTopology& topology, const Near& near) {
  Groups complexes;
  for (const CpuTopology::Cpu& cpu : topology.cpus) {
    if (!near.cpus.contains(cpu.number)) continue;
    if (!cpu.cache.has_value()) {
      return CannotBind(absl::StrCat("this machine doesn't say which CPUs share a cache with CPU ",
                                     cpu.number, "; give node or exclusive"));
    }
    complexes[*cpu.cache].insert(cpu.number);
  }
  std::vector<CpuSet> order = SetsOf(complexes);
  // Stable: equals stay in the order of their caches' lowest CPUs.
  std::stable_sort(order.begin(), order.end(),
                   [](const CpuSet& a, const CpuSet& b) { return a.size() > b.size(); });
  return order[near.index % order.size()];
}

absl::StatusOr<CpuSet> CpusFor(NumaBinding mode, const CpuTopology& topology, const Near& near) {
  switch (mode) {
    case NumaBinding::kSocket:
      return Socket(topology, near);
    case NumaBinding::kExclusive:
      return Exclusive(topology, near);
    case NumaBinding::kCoreComplex:
      return CoreComplex(topology, near);
    case NumaBinding::kNode:
    case NumaBinding::kNone:
      break;
  }
  return near.cpus;
}

// The allowed CPUs that exist: an affinity may have others.
CpuSet Usable(const CpuTopology& topology) {
  CpuSet usable;
  for (const CpuTopology::Cpu& cpu : topology.cpus) {
    if (topology.allowed.contains(cpu.number)) usable.insert(cpu.number);
  }
  return usable;
}

// The usable CPUs of each NUMA node that has any; those that are in none come last, together.
std::vector<CpuSet> UsableByNode(const CpuTopology& topology) {
  CpuSet left = Usable(topology);
  std::vector<CpuSet> nodes;
  for (const auto& [node, cpus] : topology.numa_nodes) {
    CpuSet own = Common(cpus, left);  // nodes of memory alone may repeat another one's CPUs
    for (const uint32_t cpu : own) left.erase(cpu);
    if (!own.empty()) nodes.push_back(std::move(own));
  }
  if (!left.empty()) nodes.push_back(std::move(left));
  return nodes;
}

absl::StatusOr<std::vector<CpuSet>> ShareCores(const CpuTopology& topology, uint32_t workers) {
  std::vector<CpuSet> cores;
  for (const CpuSet& node : UsableByNode(topology)) {
    for (CpuSet& core : SetsOf(CoresOf(topology, node))) cores.push_back(std::move(core));
  }
  if (cores.size() < workers) {
    return CannotBind(absl::StrCat("needs a physical core for each of the ", workers,
                                   " workers, but this process may use ", cores.size(),
                                   "; start fewer workers, or give numa or none"));
  }
  std::vector<CpuSet> result;
  for (uint32_t worker = 0; worker < workers; ++worker) {
    result.push_back(Union(cores, Share(cores.size(), workers, worker)));
  }
  return result;
}

std::vector<CpuSet> ShareNodes(const std::vector<CpuSet>& nodes, uint32_t workers) {
  std::vector<CpuSet> result(workers);
  if (workers <= nodes.size()) {
    for (uint32_t worker = 0; worker < workers; ++worker) {
      result[worker] = Union(nodes, Share(nodes.size(), workers, worker));
    }
    return result;
  }
  for (size_t node = 0; node < nodes.size(); ++node) {
    const auto [begin, end] = Share(workers, nodes.size(), node);
    for (size_t worker = begin; worker < end; ++worker) result[worker] = nodes[node];
  }
  return result;
}

}  // namespace

std::string CpuSetText(const CpuSet& cpus) {
  std::string text;
  for (auto cpu = cpus.begin(); cpu != cpus.end();) {
    const uint32_t first = *cpu;
    uint32_t last = first;
    while (++cpu != cpus.end() && *cpu == last + 1) last = *cpu;
    absl::StrAppend(&text, text.empty() ? "" : ",", first);
    if (last != first) absl::StrAppend(&text, "-", last);
  }
  return text;
}

const char* NumaBindingName(NumaBinding mode) {
  switch (mode) {
    case NumaBinding::kNode:
      return "node";
    case NumaBinding::kSocket:
      return "socket";
    case NumaBinding::kExclusive:
      return "exclusive";
    case NumaBinding::kCoreComplex:
      return "core-complex";
    case NumaBinding::kNone:
      break;
  }
  return "none";
}

const char* CpuBindingName(CpuBinding mode) {
  switch (mode) {
    case CpuBinding::kCores:
      return "cores";
    case CpuBinding::kNuma:
      return "numa";
    case CpuBinding::kNone:
      break;
  }
  return "none";
}

absl::StatusOr<std::vector<CpuSet>> PlanNumaBinding(NumaBinding mode, const CpuTopology& topology,
                                                    const std::vector<GpuPlace>& gpus,
                                                    uint32_t workers) {
  DDPRUN_CHECK(mode != NumaBinding::kNone, "there is a binding to plan");
  if (gpus.size() < workers) {
    return CannotBind(absl::StrCat("binds each worker to the CPUs near its GPU, but there ",
                                   gpus.size() == 1 ? "is " : "are ", CountText(gpus.size(), "GPU"),
                                   " for ", CountText(workers, "worker"),
                                   "; leave it out, or use --cpu_binding, which needs none"));
  }
  std::vector<CpuSet> result;
  for (uint32_t worker = 0; worker < workers; ++worker) {
    DDPRUN_ASSIGN_OR_RETURN(const Near near, Look(topology, gpus, worker));
    DDPRUN_ASSIGN_OR_RETURN(CpuSet cpus, CpusFor(mode, topology, near));
    result.push_back(std::move(cpus));
  }
  return result;
}

absl::StatusOr<std::vector<CpuSet>> PlanCpuBinding(CpuBinding mode, const CpuTopology& topology,
                                                   uint32_t workers) {
  DDPRUN_CHECK(mode != CpuBinding::kNone, "there is a binding to plan");
  const std::vector<CpuSet> nodes = UsableByNode(topology);
  if (nodes.empty()) {
    return CannotBind(absl::StrCat("none of the CPUs that this process may use (",
                                   CpuSetText(topology.allowed),
                                   ") is on this machine's list; leave the option out"));
  }
  if (mode == CpuBinding::kNuma) return ShareNodes(nodes, workers);
  return ShareCores(topology, workers);
}

std::vector<uint32_t> ThreadsForCores(const CpuTopology& topology,
                                      const std::vector<CpuSet>& worker_cpus) {
  std::vector<Groups> cores;
  std::map<uint32_t, uint32_t> sharers;  // of each core
  for (const CpuSet& cpus : worker_cpus) {
    cores.push_back(CoresOf(topology, cpus));
    for (const auto& [core, own] : cores.back()) ++sharers[core];
  }
  std::vector<uint32_t> threads;
  for (const Groups& own : cores) {
    std::map<uint32_t, uint32_t> shared_by;  // how many of its cores have so many sharers
    for (const auto& [core, unused] : own) ++shared_by[sharers[core]];
    double sum = 0;
    for (const auto& [count, number] : shared_by) sum += static_cast<double>(number) / count;
    // Thirds and the like don't add up exactly.
    threads.push_back(std::max(1U, static_cast<uint32_t>(sum + 1e-6)));
  }
  return threads;
}

}  // namespace ddprun::launcher
