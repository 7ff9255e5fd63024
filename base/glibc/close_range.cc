#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>

#include "base/glibc/later_functions.h"

namespace ddprun::glibc {
namespace {

// What getdents64(2) fills in, without the name, which begins at kNameAt.
struct DirectoryEntry {
  uint64_t inode;
  int64_t offset;
  uint16_t size;
  uint8_t type;
};
constexpr size_t kNameAt = offsetof(DirectoryEntry, type) + 1;

// A descriptor's number. Returns -1 for "." and "..".
int NumberOf(const char* name) {
  int number = 0;
  for (; *name != '\0'; ++name) {
    if (*name < '0' || *name > '9') return -1;
    number = 10 * number + (*name - '0');
  }
  return number;
}

bool Has(int flags, unsigned flag) { return (static_cast<unsigned>(flags) & flag) != 0; }

void CloseOne(int fd, int flags) {
  if (Has(flags, CLOSE_RANGE_CLOEXEC)) {
    const int before = fcntl(fd, F_GETFD);
    if (before >= 0) fcntl(fd, F_SETFD, before | FD_CLOEXEC);
  } else {
    syscall(SYS_close, fd);  // no point where a thread may be cancelled, unlike close(3)
  }
}

// Calls `visit(fd)` for each descriptor of this thread from `first` to `last`. Returns false, and
// sets errno, if /proc doesn't list them. The kernel's place in the list is a descriptor's number,
// so that closing what was read skips none of the rest.
template <typename Visit>
bool ForEachListed(unsigned first, unsigned last, const Visit& visit) {
  const int list = open("/proc/thread-self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (list < 0) return false;
  alignas(DirectoryEntry) char buffer[2048];
  ssize_t size = 0;
  while ((size = syscall(SYS_getdents64, list, buffer, sizeof(buffer))) > 0) {
    DirectoryEntry entry{};
    for (const char* at = buffer; at < buffer + size; at += entry.size) {
      memcpy(&entry, at, sizeof(entry));
      const int fd = NumberOf(at + kNameAt);
      if (fd < 0 || fd == list) continue;
      if (static_cast<unsigned>(fd) >= first && static_cast<unsigned>(fd) <= last) visit(fd);
    }
  }
  const int error = errno;
  syscall(SYS_close, list);
  errno = error;
  return size == 0;
}

}  // namespace

int CloseRange(unsigned first, unsigned last, int flags) {
  const auto result = syscall(SYS_close_range, first, last, flags);
  if (result == 0) return 0;
  const bool lacks_flag = errno == EINVAL && Has(flags, CLOSE_RANGE_CLOEXEC);
  if (errno != ENOSYS && errno != EPERM && !lacks_flag) return -1;
  return CloseRangeByHand(first, last, flags);
}

int CloseRangeByHand(unsigned first, unsigned last, int flags) {
  constexpr unsigned kKnown = CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE;
  if (first > last || Has(flags, ~kKnown)) {
    errno = EINVAL;
    return -1;
  }
  if (Has(flags, CLOSE_RANGE_UNSHARE) && unshare(CLONE_FILES) != 0) return -1;
  const int before = errno;
  if (!ForEachListed(first, last, [flags](int fd) { CloseOne(fd, flags); })) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const auto end = static_cast<unsigned>(std::min<rlim_t>(limit.rlim_cur, INT_MAX));
    for (unsigned fd = first; fd <= last && fd < end; ++fd) CloseOne(static_cast<int>(fd), flags);
  }
  errno = before;
  return 0;
}

int AddCloseFrom(posix_spawn_file_actions_t* actions, int first) {
  if (first < 0 || first >= sysconf(_SC_OPEN_MAX)) return EBADF;
  int error = 0;
  const bool is_listed = ForEachListed(static_cast<unsigned>(first), INT_MAX, [&](int fd) {
    if (error == 0) error = posix_spawn_file_actions_addclose(actions, fd);
  });
  return is_listed ? error : errno;
}

}  // namespace ddprun::glibc
