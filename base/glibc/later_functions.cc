#include "base/glibc/later_functions.h"

#include <link.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace ddprun::glibc {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

int64_t Now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return Nanoseconds(now);
}

struct ObjectSearch {
  uintptr_t address;
  dl_find_object* result;
};

// Whether `info` is the object that is searched for, which then is in the result: a callback of
// dl_iterate_phdr(3).
int LookAtObject(dl_phdr_info* info, size_t, void* data) {
  const auto* search = static_cast<ObjectSearch*>(data);
  const auto page = static_cast<uintptr_t>(getpagesize());
  bool is_here = false;
  uintptr_t start = UINTPTR_MAX;
  uintptr_t end = 0;
  uintptr_t frames = 0;
  for (const ElfW(Phdr)* header = info->dlpi_phdr; header != info->dlpi_phdr + info->dlpi_phnum;
       ++header) {
    const uintptr_t begin = info->dlpi_addr + header->p_vaddr;
    if (header->p_type == DLFO_EH_SEGMENT_TYPE) frames = begin;
    if (header->p_type != PT_LOAD) continue;
    is_here = is_here || search->address - begin < header->p_memsz;
    start = std::min(start, begin & ~(page - 1));
    end = std::max(end, begin + header->p_memsz);
  }
  if (!is_here) return 0;
  *search->result = {};
  search->result->dlfo_map_start = reinterpret_cast<void*>(start);
  search->result->dlfo_map_end = reinterpret_cast<void*>(end);
  search->result->dlfo_eh_frame = reinterpret_cast<void*>(frames);
  return 1;
}

}  // namespace

uint32_t Random() {
  uint32_t number = 0;
  FillRandomly(&number, sizeof(number));
  return number;
}

void FillRandomly(void* buffer, size_t size) {
  for (auto* rest = static_cast<unsigned char*>(buffer); size > 0;) {
    const ssize_t got = getrandom(rest, size, 0);
    if (got < 0 && errno != EINTR) abort();
    if (got < 0) continue;
    rest += got;
    size -= static_cast<size_t>(got);
  }
}

// glibc's own fork(2) has the kernel write the child's thread id into the thread's descriptor,
// where raise(3) and mutexes read it. The address is the one that the kernel clears at the
// thread's end. A kernel that doesn't report it (no CONFIG_CHECKPOINT_RESTORE) leaves the parent's.
pid_t ForkWithoutHandlers() {
  int* thread_id = nullptr;
  unsigned long flags = SIGCHLD;  // NOLINT(google-runtime-int): clone(2)'s
  if (prctl(PR_GET_TID_ADDRESS, &thread_id) == 0 && thread_id != nullptr) {
    flags |= CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
  }
  // The last two are child_tid and tls, in an order that depends on the architecture; without
  // CLONE_SETTLS the latter isn't read.
  return static_cast<pid_t>(syscall(SYS_clone, flags, nullptr, nullptr, thread_id, thread_id));
}

// The condition can only wait for a time of day, so the rest until the deadline is converted to
// one. If somebody sets the time of day meanwhile, that is too early or too late. Too early: it
// wakes up before the deadline, and says so as a spurious wakeup, which any caller has to expect;
// waiting again in here would lose a signal that came between two waits. Too late: bounded by
// waiting for a second at most.
int CondClockWait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                  const timespec* deadline) {
  if (clock == CLOCK_REALTIME) return pthread_cond_timedwait(condition, mutex, deadline);
  if (clock != CLOCK_MONOTONIC || deadline->tv_nsec < 0 || deadline->tv_nsec >= kSecond) {
    return EINVAL;
  }
  // No subtraction of a deadline that may be years before or after.
  const time_t seconds_now = static_cast<time_t>(Now(clock) / kSecond);
  const bool is_far = deadline->tv_sec > seconds_now + 1;
  const bool is_past = deadline->tv_sec < seconds_now;
  const int64_t rest = is_far    ? kSecond
                       : is_past ? 0
                                 : std::min(Nanoseconds(*deadline) - Now(clock), kSecond);
  const int64_t until = Now(CLOCK_REALTIME) + rest;
  const timespec slice{.tv_sec = until / kSecond, .tv_nsec = until % kSecond};
  const int result = pthread_cond_timedwait(condition, mutex, &slice);
  if (result != ETIMEDOUT || is_past) return result;
  return is_far || Now(clock) < Nanoseconds(*deadline) ? 0 : ETIMEDOUT;
}

int FindObject(void* address, dl_find_object* result) {
  ObjectSearch search{.address = reinterpret_cast<uintptr_t>(address), .result = result};
  return dl_iterate_phdr(&LookAtObject, &search) == 1 ? 0 : -1;
}

}  // namespace ddprun::glibc
