#ifndef DDPRUN_LAUNCHER_OS_CGROUP_H_
#define DDPRUN_LAUNCHER_OS_CGROUP_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"

namespace ddprun::launcher {

// Makes a cgroup of version 2 below the one that this process is in, for one agent's workers, and
// returns its folder. `root` comes before /proc and is for tests.
//
// Kills and removes first the cgroups of earlier agents that were killed together with their
// keepers, which would have done that. The cgroup of an agent in another PID namespace is removed
// if it is empty and not claimed.
//
// Errors: FAILED_PRECONDITION — cgroups can't be used here, with the reason: no cgroup2 file
// system, a kernel without cgroup.kill (before 5.14), the folder belongs to somebody else (a user
// without a delegated cgroup), or Slurm runs the job and keeps its own account of processes by
// cgroups. Threads: any. Source: cgroups(7); the kernel's cgroup-v2.rst.
absl::StatusOr<std::string> MakeWorkerCgroup(const std::string& root = "");

// The folder of the cgroup of version 2 that this process is in; "" = there is none to be seen.
std::string OwnCgroupFolder();

// Claims a cgroup while the descriptor is open: an agent of another PID namespace, which can't see
// our processes, then doesn't remove the empty cgroup. Invalid = the folder is gone, or is being
// removed. Threads: any. Source: flock(2).
Fd ClaimCgroup(const std::string& folder);

// Moves a process into the cgroup of this folder. Takes up to some 10 ms on a machine that forks
// much. Errors: of open(2), write(2): the caller needs write access to the common parent of both
// cgroups.
absl::Status EnterCgroup(const std::string& folder, pid_t pid);

// A cgroup made by MakeWorkerCgroup(), in the process that starts workers in it; claims it.
class WorkerCgroup {
 public:
  WorkerCgroup() = default;  // none
  explicit WorkerCgroup(std::string path);

  // For clone3(2) with CLONE_INTO_CGROUP; -1 = there is none, or it can't be used.
  int folder() const { return folder_.get(); }
  // SIGKILLs all processes in the cgroup, and those that are being forked. Takes 10 to 20 ms, so it
  // is for trees that SIGKILL to single processes doesn't end.
  void Kill() const;
  // Removes and makes the cgroup again. Some kernels (seen: 6.18) kill processes that are cloned
  // into a cgroup that was killed before. Requires: the cgroup is empty.
  void Renew();
  // Moves the processes to the cgroup of this folder, if possible.
  void MoveOut(const std::string& folder) const;
  // Requires: the cgroup is empty.
  void Remove() const;

 private:
  std::string path_;
  Fd folder_;
};

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

#endif  // DDPRUN_LAUNCHER_OS_CGROUP_H_
