#include "launcher/os/wait_calls.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <ctime>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/os/files.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kDescriptorsMax = 6;  // that are named of a poll(2)

enum class Kind {
  kDescriptor,
  kFileLock,
  kPoll,
  kSelect,
  kEpoll,
  kChild,
  kSleep,
  kFutex,
  kOpen,
  kSignal,
  kOther
};

struct Call {
  long number;  // NOLINT(google-runtime-int): syscall(2)
  const char* name;
  Kind kind;
};

// Some calls exist on older architectures only: x86-64 has poll, aarch64 has ppoll alone.
constexpr Call kCalls[] = {
    {SYS_read, "read", Kind::kDescriptor},
    {SYS_readv, "readv", Kind::kDescriptor},
    {SYS_pread64, "pread", Kind::kDescriptor},
    {SYS_write, "write", Kind::kDescriptor},
    {SYS_writev, "writev", Kind::kDescriptor},
    {SYS_pwrite64, "pwrite", Kind::kDescriptor},
    {SYS_recvfrom, "recvfrom", Kind::kDescriptor},
    {SYS_recvmsg, "recvmsg", Kind::kDescriptor},
    {SYS_recvmmsg, "recvmmsg", Kind::kDescriptor},
    {SYS_sendto, "sendto", Kind::kDescriptor},
    {SYS_sendmsg, "sendmsg", Kind::kDescriptor},
    {SYS_sendmmsg, "sendmmsg", Kind::kDescriptor},
    {SYS_sendfile, "sendfile", Kind::kDescriptor},
    {SYS_splice, "splice", Kind::kDescriptor},
    {SYS_accept, "accept", Kind::kDescriptor},
    {SYS_accept4, "accept", Kind::kDescriptor},
    {SYS_connect, "connect", Kind::kDescriptor},
    {SYS_ioctl, "ioctl", Kind::kDescriptor},
    {SYS_fsync, "fsync", Kind::kDescriptor},
    {SYS_fdatasync, "fdatasync", Kind::kDescriptor},
    {SYS_mq_timedreceive, "mq_receive", Kind::kDescriptor},
    {SYS_mq_timedsend, "mq_send", Kind::kDescriptor},
    {SYS_flock, "flock", Kind::kFileLock},
    {SYS_fcntl, "fcntl", Kind::kFileLock},
    {SYS_ppoll, "poll", Kind::kPoll},
    {SYS_pselect6, "select", Kind::kSelect},
    {SYS_epoll_pwait, "epoll", Kind::kEpoll},
    {SYS_wait4, "wait4", Kind::kChild},
    {SYS_waitid, "waitid", Kind::kChild},
    {SYS_nanosleep, "nanosleep", Kind::kSleep},
    {SYS_clock_nanosleep, "clock_nanosleep", Kind::kSleep},
    {SYS_futex, "futex", Kind::kFutex},
    {SYS_openat, "openat", Kind::kOpen},
    {SYS_rt_sigsuspend, "sigsuspend", Kind::kSignal},
    {SYS_rt_sigtimedwait, "sigwait", Kind::kSignal},
    {SYS_restart_syscall, "a wait with a time limit", Kind::kOther},
    {SYS_clone, "the exec of a child that it starts", Kind::kOther},
    {SYS_semtimedop, "a System V semaphore", Kind::kOther},
    {SYS_semop, "a System V semaphore", Kind::kOther},
    {SYS_msgrcv, "a System V message queue", Kind::kOther},
    {SYS_msgsnd, "a System V message queue", Kind::kOther},
    {SYS_io_getevents, "asynchronous input or output", Kind::kOther},
#ifdef SYS_io_uring_enter
    {SYS_io_uring_enter, "io_uring", Kind::kDescriptor},
#endif
#ifdef SYS_clone3
    {SYS_clone3, "the exec of a child that it starts", Kind::kOther},
#endif
#ifdef SYS_epoll_pwait2
    {SYS_epoll_pwait2, "epoll", Kind::kEpoll},
#endif
#ifdef SYS_futex_waitv
    {SYS_futex_waitv, "one of several locks", Kind::kOther},
#endif
#ifdef SYS_poll
    {SYS_poll, "poll", Kind::kPoll},
    {SYS_select, "select", Kind::kSelect},
    {SYS_epoll_wait, "epoll", Kind::kEpoll},
    {SYS_open, "open", Kind::kOpen},
    {SYS_pause, "pause", Kind::kSignal},
    {SYS_vfork, "the exec of a child that it starts", Kind::kOther},
#endif
};

// A C int in the register that a system call was given.
int Int(uint64_t argument) { return static_cast<int>(static_cast<uint32_t>(argument)); }

std::string LimitText(int64_t milliseconds) {
  return absl::StrCat(", for at most ", milliseconds, " ms");
}

// "202 0x55… 0x189 0x0 0x0 0x0 0xffffffff 0x7ff… 0x7ff…": number, arguments, stack, instruction.
std::optional<BlockedCall> Parse(absl::string_view text) {
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  BlockedCall call;
  if (words.size() != 9 || !absl::SimpleAtoi(words[0], &call.number)) return std::nullopt;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    if (!absl::SimpleHexAtoi(words[i + 1], &call.arguments[i])) return std::nullopt;
  }
  if (!absl::SimpleHexAtoi(words[7], &call.stack)) return std::nullopt;
  return call;
}

}  // namespace

bool IsPrivateLock(const BlockedCall& call) {
  if (call.number != SYS_futex || call.arguments[3] != 0) return false;
  const int operation = Int(call.arguments[1]);
  const int command = operation & FUTEX_CMD_MASK;
  return (operation & FUTEX_PRIVATE_FLAG) != 0 &&
         (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET);
}

bool IsEpoll(const BlockedCall& call) {
#ifdef SYS_epoll_wait
  if (call.number == SYS_epoll_wait) return true;
#endif
  return call.number == SYS_epoll_pwait;
}

size_t ReadMemory(pid_t pid, uint64_t address, void* into, size_t size) {
  const iovec here{.iov_base = into, .iov_len = size};
  const iovec there{.iov_base = reinterpret_cast<void*>(address), .iov_len = size};
  const ssize_t n = process_vm_readv(pid, &here, 1, &there, 1, 0);
  return n < 0 ? 0 : static_cast<size_t>(n);
}

size_t CallReader::Memory(uint64_t address, void* into, size_t size) const {
  return with_memory_ && address != 0 ? ReadMemory(pid_, address, into, size) : 0;
}

std::optional<BlockedCall> CallReader::Read(const std::string& folder, CallText* text) const {
  const std::string line = ProcText(folder + "syscall");
  switch (ProcState(folder)) {
    case 'T':
      *text = {"stopped by a signal", "is stopped by a signal (SIGCONT continues it)"};
      return std::nullopt;
    case 't':
      *text = {"stopped by a debugger", "is stopped by a debugger"};
      return std::nullopt;
    case 'Z':
    case 'X':
      *text = {"ended", "has ended"};
      return std::nullopt;
    case 'R':
      *text = {"computes", "computes"};
      return std::nullopt;
    case 'D': {
      const std::string place = ProcText(folder + "wchan");
      const std::string where = place.empty() || place == "0" ? "" : absl::StrCat(": ", place);
      *text = {absl::StrCat("in the kernel", where), absl::StrCat("waits in the kernel", where)};
      return std::nullopt;
    }
    default:
      break;
  }
  const std::optional<BlockedCall> call = Parse(line);
  if (line == "running") {
    *text = {"computes", "computes"};
  } else if (!call.has_value()) {
    *text = {line.empty() ? "unknown" : "in the kernel", line.empty() ? "" : "waits in the kernel"};
  } else {
    *text = Describe(*call);
  }
  return call;
}

CallText CallReader::Describe(const BlockedCall& call) const {
  const auto found = std::find_if(std::begin(kCalls), std::end(kCalls),
                                  [&](const Call& known) { return known.number == call.number; });
  if (found == std::end(kCalls)) {
    const std::string what = absl::StrCat("system call ", call.number);
    return {what, absl::StrCat("waits in ", what)};
  }
  const int fd = Int(call.arguments[0]);
  switch (found->kind) {
    case Kind::kDescriptor:
      return OfDescriptor(found->name, fd);
    case Kind::kFileLock:
      return OfFileLock(found->name, fd);
    case Kind::kPoll:
      return OfDescriptors(found->name, Polled(call),
                           call.number == SYS_ppoll      ? LimitAt(call.arguments[2])
                           : Int(call.arguments[2]) >= 0 ? LimitText(Int(call.arguments[2]))
                                                         : "");
    case Kind::kSelect:
      return OfDescriptors(found->name, Selected(call),
                           call.arguments[4] != 0 ? ", with a time limit" : "");
    case Kind::kEpoll: {
      const bool limited = IsEpoll(call) ? Int(call.arguments[3]) >= 0 : call.arguments[3] != 0;
      return OfDescriptors(found->name, target_.Watched(fd, kDescriptorsMax),
                           !limited        ? ""
                           : IsEpoll(call) ? LimitText(Int(call.arguments[3]))
                                           : LimitAt(call.arguments[3]));
    }
    case Kind::kChild:
      return OfChild(call);
    case Kind::kSleep:
      return {"a sleep", "sleeps"};
    case Kind::kFutex:
      return OfFutex(call);
    case Kind::kOpen:
      return OfOpen(call.arguments[call.number == SYS_openat ? 1 : 0]);
    case Kind::kSignal:
      return {"a signal", "waits for a signal"};
    case Kind::kOther:
      return {found->name, absl::StrCat("waits for ", found->name)};
  }
  return {};
}

CallText CallReader::OfDescriptor(const char* name, int fd) const {
  const std::string target = target_.Descriptor(fd);
  if (target == "terminal" && absl::StrContains(name, "read")) {
    return {"terminal input", "waits for input at its terminal"};
  }
  return {absl::StrCat(name, " of ", target), absl::StrCat("waits for ", target, " (", name, ")")};
}

CallText CallReader::OfDescriptors(const char* name, const std::vector<int>& fds,
                                   const std::string& limit) const {
  std::vector<std::string> names;
  for (const int fd : fds) {
    std::string target = target_.Descriptor(fd);
    if (std::find(names.begin(), names.end(), target) == names.end()) {
      names.push_back(std::move(target));
    }
  }
  if (names.empty()) {
    return {absl::StrCat(name, limit), absl::StrCat("waits in ", name, limit)};
  }
  const std::string all = absl::StrJoin(names, ", ");
  if (all == "terminal") return {"terminal input" + limit, "waits for input at its terminal"};
  return {absl::StrCat(name, " of ", all, limit),
          absl::StrCat("waits for ", all, " (", name, limit, ")")};
}

CallText CallReader::OfChild(const BlockedCall& call) const {
  constexpr int kPid = 1;    // P_PID of waitid(2)
  constexpr int kPidfd = 3;  // P_PIDFD
  std::vector<pid_t> children = WaitTarget::Children(pid_);
  const bool any = call.number != SYS_wait4;
  const pid_t one = Int(call.arguments[any ? 1 : 0]);
  if (any && Int(call.arguments[0]) == kPidfd) return OfDescriptor("waitid", one);
  if (one > 0 && (!any || Int(call.arguments[0]) == kPid)) children = {one};
  if (children.size() > kDescriptorsMax) children.resize(kDescriptorsMax);
  const auto list = [&](absl::string_view open, absl::string_view between, bool pid_first) {
    return absl::StrJoin(children, ", ", [&](std::string* out, pid_t child) {
      const std::string command = WaitTarget::Command(child);
      if (pid_first) absl::StrAppend(out, child, between, command, ")");
      if (!pid_first) absl::StrAppend(out, open, command, between, child, ")");
    });
  };
  if (children.empty()) return {"a child", "waits for a child"};
  const char* noun = children.size() == 1 ? "its child " : "one of its children ";
  return {absl::StrCat(noun, list("", " (", true)),
          absl::StrCat("waits for ", noun, list("`", "` (pid ", false))};
}

CallText CallReader::OfFileLock(const char* name, int fd) const {
  const std::string target = target_.Descriptor(fd);
  const std::string holder = target_.LockHolder();
  return {absl::StrCat(name == std::string("flock") ? "flock of " : "a lock on ", target),
          absl::StrCat("waits for the file lock on ", target, holder.empty() ? "" : ", held by ",
                       holder)};
}

CallText CallReader::OfFutex(const BlockedCall& call) const {
  const bool is_private = (Int(call.arguments[1]) & FUTEX_PRIVATE_FLAG) != 0;
  const std::string lock = is_private ? "a lock" : "a lock that may be shared between processes";
  if (call.arguments[3] == 0) {
    return {absl::StrCat(lock, ", without a time limit"), absl::StrCat("waits for ", lock)};
  }
  return {absl::StrCat(lock, ", with a time limit"),
          absl::StrCat("waits for ", lock, ", with a time limit")};
}

CallText CallReader::OfOpen(uint64_t path) const {
  std::array<char, 256> bytes{};
  // A string near the end of a mapping can't be read in one piece of full size.
  constexpr size_t kPage = 4096;
  const size_t size = std::min<size_t>(bytes.size() - 1, kPage - path % kPage);
  if (Memory(path, bytes.data(), size) == 0) return {"open of a file", "waits to open a file"};
  return {absl::StrCat("open of ", bytes.data()), absl::StrCat("waits to open ", bytes.data())};
}

std::vector<int> CallReader::Polled(const BlockedCall& call) const {
  std::array<pollfd, kDescriptorsMax> polled{};
  const size_t count = std::min<size_t>(polled.size(), call.arguments[1]);
  const size_t size = Memory(call.arguments[0], polled.data(), count * sizeof(pollfd));
  std::vector<int> fds;
  for (size_t i = 0; i < size / sizeof(pollfd); ++i) {
    if (polled[i].fd >= 0) fds.push_back(polled[i].fd);
  }
  return fds;
}

// The descriptors of select(2): the read set, then the write set. The kernel changes the sets when
// the call ends.
std::vector<int> CallReader::Selected(const BlockedCall& call) const {
  const int count = std::min(Int(call.arguments[0]), FD_SETSIZE);
  std::vector<int> fds;
  for (const size_t set : {1U, 2U}) {
    std::array<uint64_t, FD_SETSIZE / 64> bits{};
    const size_t words = static_cast<size_t>(std::max(count, 0) + 63) / 64;
    if (Memory(call.arguments[set], bits.data(), words * 8) == 0) continue;
    for (int fd = 0; fd < count && fds.size() < kDescriptorsMax; ++fd) {
      if ((bits[static_cast<size_t>(fd) / 64] >> (fd % 64) & 1) != 0) fds.push_back(fd);
    }
  }
  return fds;
}

// glibc's ppoll gives the kernel a copy, which the kernel changes at the end only.
std::string CallReader::LimitAt(uint64_t address) const {
  if (address == 0) return "";
  timespec limit{};
  if (Memory(address, &limit, sizeof(limit)) != sizeof(limit)) return ", with a time limit";
  return LimitText(static_cast<int64_t>(limit.tv_sec) * 1000 + limit.tv_nsec / 1'000'000);
}

}  // namespace ddprun::launcher
