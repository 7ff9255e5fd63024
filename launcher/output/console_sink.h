#ifndef DDPRUN_LAUNCHER_OUTPUT_CONSOLE_SINK_H_
#define DDPRUN_LAUNCHER_OUTPUT_CONSOLE_SINK_H_

#include <sys/types.h>

#include <cstddef>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/fd.h"

namespace ddprun::launcher {

// Writes to a descriptor that others may share and that may be slow (a paused terminal, `| less`),
// without ever blocking and without setting O_NONBLOCK on a file description that is not ours
// alone: a shell or a worker would suddenly get EAGAIN.
//
// Writes of up to PIPE_BUF bytes are atomic on pipes (pipe(7)), so lines of several processes on
// one pipe stay whole.
// Threads: one.
class ConsoleSink {
 public:
  // `fd` stays the caller's and must outlive it.
  explicit ConsoleSink(int fd);

  // Writes what the descriptor takes now. Returns: how many bytes are done with: written, or
  // dropped because the reader is gone.
  size_t Write(absl::string_view bytes);
  // Waits until the descriptor accepts bytes; false = not within `timeout`.
  bool WaitWritable(absl::Duration timeout) const;
  // Drops all bytes from now on.
  void Break() { broken_ = true; }
  // The descriptor that is written to.
  int fd() const { return fd_; }

 private:
  ssize_t WriteSome(absl::string_view bytes) const;

  int fd_;  // own_ or the caller's
  Fd own_;  // a second, non-blocking description of the same pipe or terminal
  bool socket_ = false;
  bool regular_ = false;    // a file: no need to write line by line
  bool ask_first_ = false;  // blocking and not to be reopened: poll(2) before each write
  bool broken_ = false;     // the reader is gone
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OUTPUT_CONSOLE_SINK_H_
