#ifndef DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_PARSERS_H_
#define DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_PARSERS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "tools/doctor/core/machine_facts.h"

namespace ddprun::launcher {

// Parsers of texts of the kernel and of programs about a machine. They accept any bytes, and ignore
// what they can't parse. Pure; threads: any.

// /proc/meminfo (proc(5)): lines "MemTotal:   16316412 kB".
MemoryFacts ParseMemInfo(absl::string_view text);

// /proc/self/limits: lines "Max open files   1024   1048576   files". nullopt = one of the four
// limits is missing.
std::optional<MachineLimits> ParseLimits(absl::string_view text);

// PRETTY_NAME of /etc/os-release (os-release(5)), without its quotes.
std::string ParseSystemName(absl::string_view text);

// The version in the first line of /proc/driver/nvidia/version:
// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat …".
std::string ParseDriverVersion(absl::string_view text);

// The first "model name" of /proc/cpuinfo; ARM machines have none.
std::string ParseCpuModel(absl::string_view text);

// One value of a cgroup's memory limit: memory.max of v2, memory.limit_in_bytes of v1.
// Returns: nullopt — no limit ("max", or v1's number of about 2^63), or no number.
std::optional<uint64_t> ParseMemoryLimit(absl::string_view text);

// A program for python3 -c that imports only the standard library, and the parser of its answer:
// lines "name value". PythonFacts::path isn't filled.
extern const char kPythonQuestion[];
PythonFacts ParsePythonAnswer(absl::string_view text);

// "InfiniBand state": "4: ACTIVE" is ACTIVE.
std::string ParsePortState(absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_DOCTOR_CORE_MACHINE_PARSERS_H_
