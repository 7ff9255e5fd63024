#ifndef DDPRUN_LAUNCHER_CORE_WORKER_VITAL_H_
#define DDPRUN_LAUNCHER_CORE_WORKER_VITAL_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace ddprun::launcher {

// A sample of one worker, from /proc.
struct WorkerVital {
  bool alive = false;  // false: the other fields mean nothing
  char state = 'S';    // as in proc_pid_stat(5): R, S, D, T, t, Z …
  absl::Duration cpu;  // of the whole process tree
  uint64_t bytes = 0;  // read and written by the whole process tree
  uint64_t turns = 0;  // how often the main thread got a processor
  std::string stack;   // the main thread's in the kernel, or the part of it that can be read
  std::string where;   // for people: the innermost function of `stack`; "" = unknown
  // Two looks have found all threads of the process and its children waiting for its own locks.
  bool sealed = false;
};

// Whether the worker waits for a file. Network file systems wait without state D, and one close(2)
// may be a whole upload. Pure.
bool WaitsForFile(const WorkerVital& vital);

// Whether the worker read, wrote or computed between two samples `interval` apart. Params:
// idle_share: 1/idle_share of the time, or a tick of the kernel's accounting, isn't work. Pure.
bool Acts(const WorkerVital& before, const WorkerVital& after, absl::Duration interval,
          int idle_share);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_WORKER_VITAL_H_
