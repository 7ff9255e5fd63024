#ifndef DDPRUN_LAUNCHER_OS_STACK_PROBE_H_
#define DDPRUN_LAUNCHER_OS_STACK_PROBE_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "launcher/core/hang_detector.h"

namespace ddprun::launcher {

// Reads the stacks of a process's threads with py-spy(1) if it is installed, else gdb(1). The tool
// runs beside the loop, which never waits for it, and is killed at the time limit. Threads: the
// loop's. The destructor ends the tool.
class NativeStack {
 public:
  struct Result {
    std::string tool;  // "py-spy"; "" = none is installed
    std::string text;  // the tool's output, up to kTextMax bytes; "" = none in time
  };
  static constexpr size_t kTextMax = 256 << 10;

  // `on_done` is called once, on the loop, and never from within Start; it may destroy the object.
  // The tool is looked up in `search_path` (PATH of environ(7)).
  static std::unique_ptr<NativeStack> Start(EventLoop* loop, pid_t pid,
                                            const std::string& search_path, absl::Duration limit,
                                            std::function<void(Result)> on_done);
  ~NativeStack();
  NativeStack(const NativeStack&) = delete;
  NativeStack& operator=(const NativeStack&) = delete;

 private:
  NativeStack(EventLoop* loop, std::function<void(Result)> on_done);
  bool Spawn(pid_t pid, const std::string& search_path);
  void Read();
  void Kill();
  void Finish();

  EventLoop* loop_;
  std::function<void(Result)> on_done_;
  Result result_;
  pid_t tool_pid_ = 0;
  Fd pidfd_;
  Fd output_;
  std::unique_ptr<FdWatch> watch_;
  std::unique_ptr<Timer> limit_;
};

// Samples processes of this machine in /proc (proc(5)): what they do, and where in the kernel they
// wait. Reads no file that can block on a process's own locks (mem, cmdline, environ). One sample
// costs a read for each process of the machine.
// Threads: any.
class ProcessProbe {
 public:
  // `root` comes before /proc; for tests.
  explicit ProcessProbe(std::string root = "");

  // One sample for each pid, with processor time and bytes of its whole tree. Pid 0, and a process
  // that is gone, isn't alive.
  std::vector<WorkerVital> Look(const std::vector<pid_t>& pids) const;

 private:
  std::string Text(const std::string& path) const;

  std::string root_;
};

// The functions of a /proc/<pid>/stack, innermost first: "pipe_read < vfs_read < ksys_read".
std::string KernelStackText(const std::string& stack);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_STACK_PROBE_H_
