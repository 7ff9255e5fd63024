#ifndef DDPRUN_LAUNCHER_OS_WAIT_PROBE_H_
#define DDPRUN_LAUNCHER_OS_WAIT_PROBE_H_

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace ddprun::launcher {

// One thread of a process, and what it waits for.
struct ThreadWait {
  pid_t tid = 0;
  std::string comm;  // its name, proc_pid_comm(5)
  // "its child 4711 (sleep 25)", "recvfrom of tcp 10.0.0.1:443", "poll of pipe, for at most 5000
  // ms", "flock of /path", "terminal input", "a sleep", "a lock, without a time limit", "computes",
  // "stopped by a signal", "in the kernel: nfs_wait_bit_killable", "unknown".
  std::string what;
  // Only another thread of this process can end the wait: futex(2) without a time limit, in memory
  // that isn't shared.
  bool closed = false;
};

struct ProcessWait {
  // The predicate of a sentence about the main thread: "waits for its child `sleep 25` (pid 4711)",
  // "waits for tcp 10.0.0.1:443 (recvfrom)", "computes", "sleeps", "waits for a lock", "waits for
  // the file lock on /path, held by pid 4711 (sleep 25)"; "" = unknown.
  std::string main;
  std::vector<ThreadWait> threads;  // at most kWaitThreadsMax
  // No thread of the process or of its descendants could go on by itself at this look. Only two
  // looks prove it: SameSealed().
  bool sealed = false;
  std::string fingerprint;  // "" unless sealed
};

inline constexpr size_t kWaitThreadsMax = 256;

// Finds out what a process waits for, without stopping it and without privileges: the kernel shows
// to an ancestor of the process the system call and the arguments with which each thread is
// blocked. A process that can't be read (another user's, one that is gone, yama's ptrace_scope) is
// unknown and never sealed.
//
// The proof. A thread that waits in FUTEX_WAIT with FUTEX_PRIVATE_FLAG, without a time limit, in a
// mapping that is private, wakes up only when another thread of the same memory wakes it, or when a
// signal arrives. If all threads wait so, none is left to wake another one. A signal could still
// arrive, so a process isn't sealed that has a timer, or a handler for any signal but SIGINT (which
// Python installs), SIGCHLD (its children have to be sealed, too), errors of the program itself and
// glibc's own signals. Some runtimes keep threads that wait for sockets for good and call nothing
// of the program, so they release no lock of the program and don't count: the server of a TCPStore,
// and Gloo's event loop where each Gloo worker is idle. A DataLoader's workers don't count either:
// the threads of this process don't wait for them, or they would wait for a pipe; and the end of
// one is an error of the job.
//
// Params: pid: a descendant of this process; ignored_tids: threads that don't count, because their
// owner knows that they release nothing (the launcher's own thread in a Python worker).
// Returns: within some ms; never waits for the process or for a file server. Threads: any.
// Source: proc_pid_syscall(5), futex(2), process_vm_readv(2).
ProcessWait LookAtWaits(pid_t pid, const std::set<pid_t>& ignored_tids);

// True when both looks, taken one after the other, are sealed and no thread that counts ran in
// between (context switches). Each thread was then blocked from its part of the first look to that
// of the second, so there was a moment at which all of them were.
bool SameSealed(const ProcessWait& first, const ProcessWait& second);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_WAIT_PROBE_H_
