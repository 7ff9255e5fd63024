#ifndef DDPRUN_LAUNCHER_CORE_DEATH_FACTS_H_
#define DDPRUN_LAUNCHER_CORE_DEATH_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/instant.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::launcher {

// How one worker ended, well or not. KeeperClient sets `local_rank`, `pid`, the status and `seen`;
// WorkerLauncher adds its files and facts; WorkerGroup::Describe says which worker of the job it
// was. A worker that never started has pid 0.
struct WorkerEnd : rendezvous::WorkerFailure {
  Instant seen;  // when the keeper saw it

  bool ok() const { return exit_code == 0 && signal == 0 && start_error.empty(); }
};

// Facts about a worker's end beyond its status: one sentence for each, "<name>: <text>"
// (docs/LOGS.md lists the names). Pure; threads: any.

// What a worker said last: its error message and the end of its stderr.
std::string WordsOf(const WorkerEnd& end);

// Where the kernel put a core file. `path` has '*' for parts that can't be known afterwards (the
// time, the name of a thread).
struct CorePlace {
  std::string path;     // absolute; "" = piped
  std::string program;  // the program that the core was piped to
};

// Reads /proc/sys/kernel/core_pattern (core(5)). Params: `directory`: that of the dead process;
// `uses_pid`: core_uses_pid.
CorePlace ExpandCorePattern(absl::string_view pattern, bool uses_pid, const WorkerEnd& end,
                            const std::string& hostname, const std::string& directory);

// True for signals that write a core file by default (signal(7)).
bool DumpsCore(int signal);

// A resource limit of the workers; nullopt = unlimited or unknown.
struct Limits {
  std::optional<uint64_t> core_bytes;
  std::optional<uint64_t> open_files;
  std::optional<uint64_t> processes;
  std::optional<uint64_t> locked_bytes;
  std::optional<uint64_t> memory_bytes;
  std::optional<uint64_t> file_bytes;
  std::optional<uint64_t> cpu_seconds;
};

// A file system that a failed worker may have written to.
struct FileSystem {
  std::string folder;  // its mount point, or a folder in it
  uint64_t size_bytes = 0;
  uint64_t free_bytes = 0;  // for unprivileged users
  uint64_t files = 0;       // inodes; 0 = not counted
  uint64_t free_files = 0;
};

// Whether a write there fails: less than 1 MiB and 1 % is free, or no inode is.
bool IsFull(const FileSystem& file_system);

// Whether the worker's words say that a file system is full.
bool SaysFullDisk(const WorkerEnd& end);

// "disk: /scratch is full (2.0 TiB)"; "" = no file system is full.
std::string FullDiskFact(const std::vector<FileSystem>& file_systems);

// The limits that this end speaks of, each with its value and the command that shows it.
std::vector<std::string> LimitFacts(const WorkerEnd& end, const Limits& limits);

// What the kernel counted while the worker lived. nullopt = not known from this kernel.
struct MemoryWitness {
  std::string cgroup;                    // "/sys/fs/cgroup/job"; "" = none was found
  std::optional<uint64_t> cgroup_kills;  // OOM kills in the cgroup since the generation began
  std::optional<uint64_t> host_kills;    // on the whole machine
  std::optional<uint64_t> limit_bytes;   // of the cgroup; nullopt = unlimited
  std::optional<uint64_t> peak_bytes;
};

// Whether the out-of-memory killer was at work, for a worker that was killed by SIGKILL; "" for
// others, and when nothing is known.
std::string MemoryFact(const WorkerEnd& end, const MemoryWitness& witness);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_DEATH_FACTS_H_
