#ifndef DDPRUN_WORKER_METRICS_PROCESS_MEMORY_H_
#define DDPRUN_WORKER_METRICS_PROCESS_MEMORY_H_

#include <cstdint>

namespace ddprun::worker {

// The resident memory of this process, in bytes; 0 = unknown. Source: statm in proc(5).
uint64_t ResidentMemoryBytes();

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_PROCESS_MEMORY_H_
