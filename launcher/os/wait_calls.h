#ifndef DDPRUN_LAUNCHER_OS_WAIT_CALLS_H_
#define DDPRUN_LAUNCHER_OS_WAIT_CALLS_H_

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/os/wait_target.h"

namespace ddprun::launcher {

// The system call in which a thread is blocked, proc_pid_syscall(5).
struct BlockedCall {
  long number = -1;  // NOLINT(google-runtime-int): syscall(2)
  std::array<uint64_t, 6> arguments{};
  uint64_t stack = 0;  // the thread's stack pointer
};

// A blocked call for people.
struct CallText {
  std::string what;  // in a list of threads: ThreadWait::what
  std::string main;  // as the predicate of a sentence: ProcessWait::main
};

// Whether the call is a futex(2) wait without a time limit in memory of this process only.
bool IsPrivateLock(const BlockedCall& call);
bool IsEpoll(const BlockedCall& call);

// Reads memory of another process; the number of bytes read, 0 = not allowed, or not mapped.
size_t ReadMemory(pid_t pid, uint64_t address, void* into, size_t size);

// Reads the calls in which the threads of a process are blocked. Threads: any.
class CallReader {
 public:
  // `with_memory`: WaitTarget::CanReadMemory().
  CallReader(pid_t pid, bool with_memory) : pid_(pid), with_memory_(with_memory), target_(pid) {}

  // `folder`: "/proc/1/task/1/". nullopt = the thread isn't blocked in a call, or can't be read;
  // `text` says which.
  std::optional<BlockedCall> Read(const std::string& folder, CallText* text) const;

 private:
  CallText Describe(const BlockedCall& call) const;
  CallText OfDescriptor(const char* name, int fd) const;
  CallText OfDescriptors(const char* name, const std::vector<int>& fds,
                         const std::string& limit) const;
  CallText OfChild(const BlockedCall& call) const;
  CallText OfFileLock(const char* name, int fd) const;
  CallText OfFutex(const BlockedCall& call) const;
  CallText OfOpen(uint64_t path) const;
  std::vector<int> Polled(const BlockedCall& call) const;
  std::vector<int> Selected(const BlockedCall& call) const;
  std::string LimitAt(uint64_t timespec) const;
  size_t Memory(uint64_t address, void* into, size_t size) const;

  pid_t pid_;
  bool with_memory_;
  WaitTarget target_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_WAIT_CALLS_H_
