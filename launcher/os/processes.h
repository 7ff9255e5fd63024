#ifndef DDPRUN_LAUNCHER_OS_PROCESSES_H_
#define DDPRUN_LAUNCHER_OS_PROCESSES_H_

#include <sys/types.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The direct children of this process that nobody has reaped yet, zombies too. For a subreaper
// (PR_SET_CHILD_SUBREAPER) that includes every orphan below it.
//
// A pid of this list can't be given to another process before we reap it, so it may be signalled;
// that is why trees are emptied by killing direct children again and again, never by walking down.
// Source: /proc/<pid>/task/<tid>/children (CONFIG_PROC_CHILDREN), else every /proc/<pid>/stat.
std::vector<pid_t> DirectChildren();

// SIGKILLs a direct child that is not reaped yet, and its process group: a group is signalled as a
// whole, so that no fork(2) of a member escapes. Never signals our own group.
void KillChildAndGroup(pid_t child);

// From /proc/<pid>/stat; nullopt = there is no such process.
std::optional<pid_t> ParentOf(pid_t pid);

// The process itself or the nearest of its ancestors for which `wanted` holds; 0 = none. At most
// 64 steps up; a process that is gone has no ancestors.
pid_t FindAncestor(pid_t pid, const std::function<bool(pid_t)>& wanted);

// A variable from /proc/<pid>/environ, which is what the process was started with; "" = it has
// none, or is not readable (in the middle of an exec(2), or of another user).
std::string InitialVariable(pid_t pid, absl::string_view name);

// True when the direct child is dead and waits to be reaped.
bool IsZombie(pid_t child);

// getenv(3) as an EnvironmentLookup. Threads: any, while no thread calls setenv(3).
inline std::optional<std::string> ProcessEnvironment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

// What a process holds that a restarted job needs: "a GPU" (an open device file of NVIDIA's, AMD's
// or a render node), "port 6006" (a TCP socket that listens); "" = neither. A process whose
// descriptors can't be read has "what can't be seen".
// Source: /proc/<pid>/fd, /proc/<pid>/net/tcp and tcp6 (proc(5)). Threads: any.
std::string HeldResource(pid_t pid);

// The command line of a process on one line, at most 120 bytes; its name if it has none; "" = it is
// gone. Source: /proc/<pid>/cmdline, /proc/<pid>/comm. Threads: any.
std::string CommandText(pid_t pid);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_PROCESSES_H_
