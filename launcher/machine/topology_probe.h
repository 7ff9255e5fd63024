#ifndef DDPRUN_LAUNCHER_MACHINE_TOPOLOGY_PROBE_H_
#define DDPRUN_LAUNCHER_MACHINE_TOPOLOGY_PROBE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/core/cpu_binding.h"

namespace ddprun::launcher {

// The facts of this machine that binding workers to CPUs needs. Used only by runs that bind,
// because hwloc is loaded, and reading the kernel's files takes 2 ms, on a large machine (512 CPUs)
// 0.1 s.

// The online CPUs with their cores, sockets, caches and NUMA nodes, as hwloc finds them, and the
// CPUs that this process may run on. hwloc's own variables select another machine: HWLOC_FSROOT (a
// folder with that machine's /sys), HWLOC_XMLFILE, HWLOC_SYNTHETIC.
// Errors: NOT_FOUND — hwloc isn't installed; else errno — it can't read the machine. Threads: any.
// Source: hwloc 2.9, "Environment Variables"; the kernel's cputopology.rst.
absl::StatusOr<CpuTopology> ProbeCpuTopology();

// The GPUs that CUDA_VISIBLE_DEVICES=`visible` leaves, in its order: numbers, "GPU-…" (or the
// beginning of one) and "MIG-GPU-…/…"; as CUDA, up to the first that names none. nullopt = all, in
// the order of their PCI ids, in which numbers count too: CUDA's with CUDA_DEVICE_ORDER=PCI_BUS_ID,
// and without it where all GPUs are of one model. Reads <root>/proc/driver/nvidia/gpus and
// <root>/sys/bus/pci/devices.
// Errors: NOT_FOUND — a GPU's NUMA node can't be read; FAILED_PRECONDITION — a UUID that isn't
// this driver's, or a MIG device by its own UUID. Threads: any.
absl::StatusOr<std::vector<GpuPlace>> ProbeGpus(
    const std::optional<std::vector<std::string>>& visible, const std::string& root = "");

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_TOPOLOGY_PROBE_H_
