#ifndef DDPRUN_LAUNCHER_OS_MEMORY_CGROUP_H_
#define DDPRUN_LAUNCHER_OS_MEMORY_CGROUP_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The cgroup that counts this process's memory, of either version. Source: cgroups(7).
struct MemoryCgroup {
  std::string mount;  // above all of them
  std::string folder;
  bool is_v2 = false;
};
// `root` comes before /proc and /sys; for tests. nullopt = none is visible.
std::optional<MemoryCgroup> FindMemoryCgroup(const std::string& root = "");

struct Memory {
  uint64_t total = 0;      // bytes
  uint64_t available = 0;  // bytes; without swapping
  bool of_cgroup = false;  // else the machine's
};
// This machine's memory. nullopt = not known. Source: proc(5), /proc/meminfo.
std::optional<Memory> MachineMemory(const std::string& root = "");

// The memory that this process may use: the machine's, or that of one of its cgroups that have a
// limit, whichever has the smallest share available. Blocks for some small reads.
std::optional<Memory> OwnMemory(const std::string& root = "");

// The number in a kernel file; nullopt = something else, for example "max".
std::optional<uint64_t> NumberIn(absl::string_view text);

// The number behind "<name> " in lines of "name number"; nullopt = there is none.
std::optional<uint64_t> NumberOf(absl::string_view name, absl::string_view text);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_MEMORY_CGROUP_H_
