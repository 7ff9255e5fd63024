#ifndef DDPRUN_LAUNCHER_OS_PROCESS_PROBE_H_
#define DDPRUN_LAUNCHER_OS_PROCESS_PROBE_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/core/hang_detector.h"

namespace ddprun::launcher {

// Samples processes of this machine in /proc (proc(5)): what they do, and where in the kernel they
// wait. Reads no file that can block on a process's own locks (mem, cmdline, environ). One sample
// costs a read for each process of the machine.
// Threads: any.
class ProcessProbe {
 public:
  // `root` comes before /proc; for tests.
  explicit ProcessProbe(std::string root = "");

  // One sample for each pid, with processor time and bytes of its whole tree. Pid 0, and a process
  // that is gone, isn't alive.
  std::vector<WorkerVital> Look(const std::vector<pid_t>& pids) const;

 private:
  std::string Text(const std::string& path) const;

  std::string root_;
};

// The functions of a /proc/<pid>/stack, innermost first: "pipe_read < vfs_read < ksys_read".
std::string KernelStackText(const std::string& stack);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_PROCESS_PROBE_H_
