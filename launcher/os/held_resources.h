#ifndef DDPRUN_LAUNCHER_OS_HELD_RESOURCES_H_
#define DDPRUN_LAUNCHER_OS_HELD_RESOURCES_H_

#include <sys/types.h>

#include <string>

namespace ddprun::launcher {

// What a process holds that a restarted job needs: "a GPU" (an open device file of NVIDIA's, AMD's
// or a render node), "port 6006" (a TCP socket that listens); "" = neither. A process whose
// descriptors can't be read has "what can't be seen".
// Source: /proc/<pid>/fd, /proc/<pid>/net/tcp and tcp6 (proc(5)). Threads: any.
std::string HeldResource(pid_t pid);

// The command line of a process on one line, at most 120 bytes; its name if it has none; "" = it is
// gone. Source: /proc/<pid>/cmdline, /proc/<pid>/comm. Threads: any.
std::string CommandText(pid_t pid);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_HELD_RESOURCES_H_
