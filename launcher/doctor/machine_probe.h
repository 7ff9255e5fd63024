#ifndef DDPRUN_LAUNCHER_DOCTOR_MACHINE_PROBE_H_
#define DDPRUN_LAUNCHER_DOCTOR_MACHINE_PROBE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "launcher/doctor/core/machine_facts.h"

namespace ddprun::launcher {

// Asks this machine for what `ddprun env` shows. Threads: any.

struct MachineQuestion {
  std::string root;    // comes before /proc, /sys, /etc and /dev; for tests
  std::string python;  // path of the interpreter; "" = none
  std::string warm;    // folder in which warm starts keep what they learn; "" = none
  // How long each of those that may never answer is waited for: the driver, the resolver, Python.
  absl::Duration limit = absl::Seconds(20);
};

// All of it; versions.ddprun and the environment are left to the caller. What can't be read stays
// empty, with why where MachineFacts has a field for it. Where something didn't answer in time, a
// thread is left behind that waits for it: end soon, without destructors.
MachineFacts ProbeMachine(const MachineQuestion& question);

// What warm starts have kept in a folder: modules that stand out, by script.
std::vector<ImportFacts> ProbeImports(const std::string& folder);

// Network interfaces that have an address or are hardware, in the order of their names.
// Source: the kernel's sysfs-class-net; getifaddrs(3), which asks the real machine.
std::vector<InterfaceFacts> ProbeInterfaces(const std::string& root = "");

// InfiniBand's and RoCE's ports. Source: the kernel's sysfs-class-infiniband.
std::vector<RdmaPort> ProbeRdmaPorts(const std::string& root = "");

// The kernel's clock, as adjtimex(2) tells. nullopt = not told.
std::optional<ClockFacts> ProbeClock();

// The least memory limit of this process's cgroup and of those above it: v2's memory.max, v1's
// memory.limit_in_bytes. nullopt = no limit.
std::optional<uint64_t> CgroupMemoryLimit(const std::string& root = "");

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DOCTOR_MACHINE_PROBE_H_
