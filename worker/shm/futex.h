#ifndef DDPRUN_WORKER_SHM_FUTEX_H_
#define DDPRUN_WORKER_SHM_FUTEX_H_

#include <atomic>
#include <cstdint>

#include "base/instant.h"

namespace ddprun::worker::shm {

// Sleeps while `word` is `expected`, until a wake-up or `deadline` (CLOCK_MONOTONIC); may also
// return without reason, so the caller must check `word` again.
// The word may lie in memory that processes share. Threads: any. Source: futex(2).
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, Instant deadline);

// Wakes all threads that sleep on `word`, in all processes.
void FutexWakeAll(std::atomic<uint32_t>& word);

}  // namespace ddprun::worker::shm

#endif  // DDPRUN_WORKER_SHM_FUTEX_H_
