#include "worker/shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace ddprun::worker::shm {
namespace {

constexpr int64_t kNanosecondsASecond = 1'000'000'000;

// The kernel takes only the word's address; FUTEX_WAIT doesn't write to it.
uint32_t* AddressOf(const std::atomic<uint32_t>& word) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return reinterpret_cast<uint32_t*>(const_cast<std::atomic<uint32_t>*>(&word));
}

}  // namespace

void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, Instant deadline) {
  timespec until{};
  until.tv_sec = deadline.nanoseconds() / kNanosecondsASecond;
  until.tv_nsec = deadline.nanoseconds() % kNanosecondsASecond;
  // The variant with a bit set takes an absolute time.
  syscall(SYS_futex, AddressOf(word), FUTEX_WAIT_BITSET, expected,
          deadline.is_infinite() ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, AddressOf(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ddprun::worker::shm
