#ifndef DDPRUN_LAUNCHER_OS_WAIT_TARGET_H_
#define DDPRUN_LAUNCHER_OS_WAIT_TARGET_H_

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::launcher {

// The text of a file of /proc without blanks at its ends; "" = unreadable, or longer.
inline constexpr size_t kProcTextMax = 16 << 10;
std::string ProcText(const std::string& path, size_t bytes_max = kProcTextMax);
// 'R', 'S', 'D', 'T' … of proc_pid_stat(5), of the process or thread of `folder` ("/proc/1/"); '?'
// if it can't be read.
char ProcState(const std::string& folder);

// Names the targets of another process's descriptors. Reads only links and tables of /proc, never
// the files themselves, so a file server that doesn't answer can't block the caller. Every name has
// a fallback ("descriptor 7"), because another user's process can't be read. Threads: any.
class WaitTarget {
 public:
  explicit WaitTarget(pid_t pid) : pid_(pid) {}

  // "tcp 10.0.0.1:443" (the peer, or the own address of a listening socket), "pipe", "terminal",
  // "/path", "a pipe of its child 4711 (sleep 25)".
  std::string Descriptor(int fd) const;
  // The descriptors that an epoll descriptor watches, at most `max`.
  std::vector<int> Watched(int epoll_fd, size_t max) const;
  // "pid 4711 (sleep 25)", the process that has the file lock for which this process waits; "" =
  // not known. Source: proc_locks(5); a "->" line follows the lock that its process waits for.
  std::string LockHolder() const;

  // How many descriptors are io_uring(7) instances; nullopt if not all descriptors could be read.
  std::optional<size_t> IoUrings() const;

  // The direct children of all threads of a process, zombies too.
  static std::vector<pid_t> Children(pid_t pid);
  // True when no thread of the process is in uninterruptible sleep (state D). Reading memory, maps
  // or cmdline takes the lock of the process's memory map, for which such a thread may wait, or
  // which it may hold: the reader would wait, too.
  static bool CanReadMemory(pid_t pid);
  // The command line, cut to 60 bytes; the program's name where CanReadMemory() is false.
  static std::string Command(pid_t pid);

 private:
  std::string Socket(const std::string& inode) const;
  std::string PipeOfChild(const std::string& pipe) const;

  pid_t pid_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_WAIT_TARGET_H_
