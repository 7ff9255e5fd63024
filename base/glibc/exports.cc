// The functions of later_functions.h by their names in glibc, for a program that is linked with an
// older one (cmake/OldGlibc.cmake). They aren't in the program's dynamic symbols, so a library that
// is loaded into it never sees them.
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/glibc/later_functions.h"

namespace {

// An older loader can't unpack relocations (DT_RELR), so the program has a table of them, of 1.1
// MB, which is read before this and never again. Its pages, which are the file's, leave this
// process. If a loader doesn't add the program's address to the table's, the call fails.
[[gnu::constructor]] void DropRelocations() {
  uintptr_t table = 0;
  uintptr_t size = 0;
  for (const ElfW(Dyn)* entry = _DYNAMIC; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_RELA) table = entry->d_un.d_ptr;
    if (entry->d_tag == DT_RELASZ) size = entry->d_un.d_val;
  }
  const auto page = static_cast<uintptr_t>(getpagesize());
  const uintptr_t begin = (table + page - 1) & ~(page - 1);
  const uintptr_t end = (table + size) & ~(page - 1);
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace

#pragma GCC visibility push(hidden)
extern "C" {

// glibc 2.32: whether the process has one thread. "No" is always right, and costs an atomic
// operation where a plain one would do.
char __libc_single_threaded = 0;  // NOLINT(bugprone-reserved-identifier)

uint32_t arc4random() { return ddprun::glibc::Random(); }
void arc4random_buf(void* buffer, size_t size) { ddprun::glibc::FillRandomly(buffer, size); }
int close_range(unsigned first, unsigned last, int flags) {
  return ddprun::glibc::CloseRange(first, last, flags);
}
int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions, int first) {
  return ddprun::glibc::AddCloseFrom(actions, first);
}
pid_t _Fork() { return ddprun::glibc::ForkWithoutHandlers(); }
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* deadline) {
  return ddprun::glibc::CondClockWait(condition, mutex, clock, deadline);
}
int _dl_find_object(void* address, dl_find_object* result) {
  return ddprun::glibc::FindObject(address, result);
}
const char* sigabbrev_np(int number) { return ddprun::glibc::SignalAbbreviation(number); }
const char* sigdescr_np(int number) { return ddprun::glibc::SignalDescription(number); }
const char* strerrorname_np(int number) { return ddprun::glibc::ErrorName(number); }
const char* strerrordesc_np(int number) { return ddprun::glibc::ErrorDescription(number); }

}  // extern "C"
#pragma GCC visibility pop
