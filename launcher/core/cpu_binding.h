#ifndef DDPRUN_LAUNCHER_CORE_CPU_BINDING_H_
#define DDPRUN_LAUNCHER_CORE_CPU_BINDING_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

// Chooses the CPUs of each worker of this node. Pure; threads: any.
//
// Planned before anything starts, so that everything that can fail has failed by then; the worker's
// process calls sched_setaffinity(2) before its exec(2). torchrun's numactl would be another
// package to install, another exec(2), and an error that looks like the worker's own.

// CPUs by the kernel's numbers, those of /sys/devices/system/cpu.
using CpuSet = std::set<uint32_t>;

// "0-2,4,6-7", as the kernel's lists and taskset(1) have it; "" for none.
std::string CpuSetText(const CpuSet& cpus);

// --numa_binding: the CPUs that a worker is bound to, by its GPU.
enum class NumaBinding { kNone, kNode, kSocket, kExclusive, kCoreComplex };

// --cpu_binding: the same without regard to GPUs.
//   kCores  an even share of the physical cores, neighbours first
//   kNuma   an even share of the NUMA nodes; with more workers than nodes, workers share them
enum class CpuBinding { kNone, kCores, kNuma };

// The names in the options; "none" for kNone.
const char* NumaBindingName(NumaBinding mode);
const char* CpuBindingName(CpuBinding mode);

// The CPUs of a machine and what they share.
struct CpuTopology {
  struct Cpu {
    uint32_t number = 0;
    uint32_t core = 0;              // lowest CPU of its physical core: SMT siblings have the same
    uint32_t package = 0;           // the socket, by the kernel's number
    std::optional<uint32_t> cache;  // lowest CPU that shares its last-level data or unified cache
  };
  std::vector<Cpu> cpus;  // those that are online, each once
  std::map<uint32_t, CpuSet> numa_nodes;
  CpuSet allowed;  // those that this process may run on: sched_getaffinity(2)
};

// One GPU that the workers see, in the order in which they count them.
struct GpuPlace {
  std::string pci_id;  // "0000:3b:00.0"
  int numa_node = -1;  // as the kernel says; negative = it doesn't know, which counts as node 0
  std::string model;   // "" = unknown
};

// The CPUs of workers 0 to `workers` - 1, where worker k is near gpus[k]: what torch 2.11's
// torch/numa/binding.py gives to each, all cut down to topology.allowed.
//   kNode         the CPUs of the GPU's NUMA node
//   kSocket       those of all NUMA nodes of that node's socket
//   kExclusive    a share of the node's physical cores, divided among *all* GPUs of the node in
//                 `gpus`; the first ones get one more where it doesn't come out even
//   kCoreComplex  the CPUs that share one last-level cache: GPU k of the node gets complex k modulo
//                 their number, those with most CPUs first, then by their lowest CPU
// One difference: other NUMA nodes without a CPU that may be used add nothing; torch fails.
// Errors: FAILED_PRECONDITION with what is missing and what to do instead. Requires: not kNone.
absl::StatusOr<std::vector<CpuSet>> PlanNumaBinding(NumaBinding mode, const CpuTopology& topology,
                                                    const std::vector<GpuPlace>& gpus,
                                                    uint32_t workers);

// The CPUs of workers 0 to `workers` - 1 without regard to GPUs; see CpuBinding. kCores divides the
// cores in the order of NUMA node and number, so that a worker's are together, and the first
// workers get one more where it doesn't come out even. Errors: FAILED_PRECONDITION — fewer cores
// than workers; no CPU. Requires: not kNone.
absl::StatusOr<std::vector<CpuSet>> PlanCpuBinding(CpuBinding mode, const CpuTopology& topology,
                                                   uint32_t workers);

// How many threads each worker can have without two of this node's workers meeting on one physical
// core: its cores, where one that n workers share counts 1/n; rounded down, at least 1.
std::vector<uint32_t> ThreadsForCores(const CpuTopology& topology,
                                      const std::vector<CpuSet>& worker_cpus);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_CPU_BINDING_H_
