#ifndef DDPRUN_TOOLS_DOCTOR_MACHINE_PROBE_H_
#define DDPRUN_TOOLS_DOCTOR_MACHINE_PROBE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/doctor/core/machine_facts.h"

namespace ddprun::launcher {

// Reads small files of the kernel, for probes that treat an unreadable file as empty. Threads: any.

// The first MiB of a file; "" = it can't be read.
std::string TextOfFile(const std::string& path);
// The first line of a file without surrounding blanks, safe to show, at most 200 bytes; "" as
// above.
std::string FirstLine(const std::string& path);

struct GpuInventory {
  DriverFacts driver;
  std::vector<GpuFacts> gpus;
};

// The NVIDIA GPUs of this machine, from the driver's library (NvmlLibrary). Facts that a GPU or a
// driver doesn't report stay empty (error correction of a GeForce, for example). Without the
// library, driver.why_not says why. `root` comes before /proc; for tests. Waits for the driver,
// forever if a GPU is broken. Threads: any.
GpuInventory TakeGpuInventory(const std::string& root = "");

// Probes this machine for the facts of `ddprun env`. Threads: any.

struct MachineQuestion {
  std::string root;    // comes before /proc, /sys, /etc and /dev; for tests
  std::string python;  // path of the interpreter; "" = none
  std::string warm;    // folder in which warm starts keep what they learn; "" = none
  // How long to wait for each of the parts that may never answer: the driver, the resolver, Python.
  absl::Duration limit = absl::Seconds(20);
};

// All facts except versions.ddprun and the environment, which the caller fills in. A fact that
// can't be read stays empty, with the reason if MachineFacts has a field for it. If a part didn't
// answer in time, a thread still waits for it: the process should then end soon, without
// destructors.
MachineFacts ProbeMachine(const MachineQuestion& question);

// The records of warm starts in a folder: slow or refused modules, by script.
std::vector<ImportFacts> ProbeImports(const std::string& folder);

// Network interfaces that have an address or are hardware, in the order of their names.
// Source: the kernel's sysfs-class-net; getifaddrs(3), which asks the real machine.
std::vector<InterfaceFacts> ProbeInterfaces(const std::string& root = "");

// InfiniBand's and RoCE's ports. Source: the kernel's sysfs-class-infiniband.
std::vector<RdmaPort> ProbeRdmaPorts(const std::string& root = "");

// The state of the kernel's clock, from adjtimex(2). nullopt = not known.
std::optional<ClockFacts> ProbeClock();

// The least memory limit of this process's cgroup and of those above it: v2's memory.max, v1's
// memory.limit_in_bytes. nullopt = no limit.
std::optional<uint64_t> CgroupMemoryLimit(const std::string& root = "");

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_DOCTOR_MACHINE_PROBE_H_
