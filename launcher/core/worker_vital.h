#ifndef DDPRUN_LAUNCHER_CORE_WORKER_VITAL_H_
#define DDPRUN_LAUNCHER_CORE_WORKER_VITAL_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace ddprun::launcher {

// What a look at one worker in /proc showed.
struct WorkerVital {
  bool alive = false;  // the rest means nothing without
  char state = 'S';    // as in proc_pid_stat(5): R, S, D, T, t, Z …
  absl::Duration cpu;  // of its whole tree
  uint64_t bytes = 0;  // read and written by its whole tree
  uint64_t turns = 0;  // how often its main thread got a processor
  std::string stack;   // of its main thread in the kernel, or as much as can be read of it
  std::string where;   // for people: the innermost function of it; "" = unknown
  // Two looks have found that all its threads, and its children's, wait for locks of the process.
  bool sealed = false;
};

// Whether it waits for a file: file systems of networks wait without the state D, and one close(2)
// may be a whole upload. Pure.
bool WaitsForFile(const WorkerVital& vital);

// Whether it put out anything or used the processor between two looks, `interval` apart. Params:
// idle_share: 1/idle_share of the time, or a tick of the kernel's accounting, is no work. Pure.
bool Acts(const WorkerVital& before, const WorkerVital& after, absl::Duration interval,
          int idle_share);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_WORKER_VITAL_H_
