#ifndef DDPRUN_BASE_GLIBC_LATER_FUNCTIONS_H_
#define DDPRUN_BASE_GLIBC_LATER_FUNCTIONS_H_

#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <ctime>

// What the program and its archives call of glibc and glibc 2.28 lacks: the wheel's program has
// these instead (exports.cc, cmake/OldGlibc.cmake). Each behaves as glibc's function, which its
// test compares it with; the comments say where they differ.
namespace ddprun::glibc {

// arc4random(3), arc4random_buf(3), of glibc 2.36: from getrandom(2). A kernel without it aborts.
uint32_t Random();
void FillRandomly(void* buffer, size_t size);

// close_range(2), of glibc 2.34: the kernel's (5.9; CLOSE_RANGE_CLOEXEC: 5.11), and where it lacks
// that or a seccomp filter refuses it, CloseRangeByHand(). Async-signal-safe.
int CloseRange(unsigned first, unsigned last, int flags);
// close_range(2) by the list of descriptors in /proc or, without /proc, by trying each number below
// RLIMIT_NOFILE. Misses descriptors that other threads open meanwhile. Async-signal-safe.
int CloseRangeByHand(unsigned first, unsigned last, int flags);

// posix_spawn_file_actions_addclosefrom_np(3), of glibc 2.34, for the descriptors that are open
// when this is called. Returns 0 or an errno: EBADF, ENOMEM, or open(2)'s if /proc has no list of
// them.
int AddCloseFrom(posix_spawn_file_actions_t* actions, int first);

// _Fork(3), of glibc 2.34: fork(2) without the handlers of pthread_atfork(3). The child's thread
// doesn't register a list of robust mutexes again. Async-signal-safe.
pid_t ForkWithoutHandlers();

// pthread_cond_clockwait(3), of glibc 2.30. Requires: the condition was initialized with the
// default clock, as std::condition_variable's is. The clock in question is read at least once a
// second: if the time of day is set, a wait is late by a second at most. Wakes up
// spuriously at such a time.
int CondClockWait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                  const timespec* deadline);

// _dl_find_object(3), of glibc 2.35, which libgcc finds the handlers of exceptions by. The link map
// is always null, which libgcc doesn't read. Takes dl_iterate_phdr(3)'s lock, so it isn't
// async-signal-safe.
int FindObject(void* address, dl_find_object* result);

// sigabbrev_np(3), sigdescr_np(3), strerrorname_np(3), strerrordesc_np(3), of glibc 2.32: "INT",
// "Interrupt", "EPERM", "Operation not permitted". nullptr: there is no such signal or error.
const char* SignalAbbreviation(int number);
const char* SignalDescription(int number);
const char* ErrorName(int number);
const char* ErrorDescription(int number);

}  // namespace ddprun::glibc

#endif  // DDPRUN_BASE_GLIBC_LATER_FUNCTIONS_H_
