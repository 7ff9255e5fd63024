#ifndef DDPRUN_LAUNCHER_OUTPUT_CONSOLE_H_
#define DDPRUN_LAUNCHER_OUTPUT_CONSOLE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "launcher/core/line_collapser.h"

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

// Writes whole lines of many streams to one file (ConsoleSink) without blocking the loop.
// Lines that the descriptor doesn't accept now are kept.
//
// Lines of different streams never mix: kept bytes are written first.
// Threads: the loop's.
class Console : public std::enable_shared_from_this<Console> {
 public:
  // The one console for the file of `fd` on this thread, so that all its streams share the order:
  // stdout and stderr are mostly one terminal or one pipe, which may take a part of a line. Regular
  // files take all; each descriptor has a console, and its own place in the file. `fd` stays the
  // caller's and must outlive the console of its file.
  static std::shared_ptr<Console> For(EventLoop* loop, int fd);
  // Waits up to 200 ms for the descriptor to accept the rest.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Writes complete lines, now as far as the descriptor accepts them, the rest when it is writable.
  // Unbounded: the caller checks busy() first, or has a bound of its own.
  void Write(absl::string_view lines);
  // True while bytes are kept.
  bool busy() const { return !pending_.empty(); }
  // How many bytes are kept.
  size_t waiting() const { return pending_.size(); }
  // Calls `on_ready` once when the console is not busy; first come, first served. `owner` is for
  // Forget().
  void Await(const void* owner, std::function<void()> on_ready);
  void Forget(const void* owner);

 private:
  Console(EventLoop* loop, int fd);
  // Writes as much as possible of pending_ without blocking.
  void Flush();
  void WatchWritable();
  void OnWritable();

  EventLoop* loop_;
  ConsoleSink sink_;
  // An epoll instance that is readable when the sink takes something: libuv makes what it watches
  // non-blocking, so it must not watch that descriptor itself.
  Fd writable_;
  std::string pending_;
  std::deque<std::pair<const void*, std::function<void()>>> waiting_;
  std::unique_ptr<FdWatch> watch_;
};

// One of the two output streams of all workers of a generation, on a console that shows equal lines
// of several workers once (--collapse_output).
//
// Memory: that of a LineCollapser, and lines that the console hasn't accepted; streams pause while
// there are any.
// Threads: the loop's.
class CollapsingConsole {
 public:
  // `prefix` returns the prefix of a line of these local ranks (ascending).
  using Prefix = std::function<std::string(const std::vector<uint32_t>& local_ranks)>;
  CollapsingConsole(EventLoop* loop, int fd, Prefix prefix);
  // Writes the lines that wait.
  ~CollapsingConsole();
  CollapsingConsole(const CollapsingConsole&) = delete;
  CollapsingConsole& operator=(const CollapsingConsole&) = delete;

  void Begin(uint32_t local_rank);
  // The stream has ended. Its lines are written now, or at their time if other workers may have
  // them.
  void End(uint32_t local_rank);
  // One line without its newline.
  void Add(uint32_t local_rank, absl::string_view line);
  // Writes the lines that are due; to be called after some Add().
  void Flush();

 private:
  void Write(const std::vector<LineCollapser::Line>& lines);

  EventLoop* loop_;
  const Prefix prefix_;
  std::shared_ptr<Console> console_;
  LineCollapser collapser_{LineCollapser::Bounds()};
  Timer timer_;
};

// Makes a pseudo-terminal (pty(7)) for a program whose output is copied to the terminal `like`. It
// has the same size and doesn't process output, because `like` does. Returns the master as `first`
// and the program's end as `second`. It is no process's controlling terminal, so it sends no
// signals. Errors: of posix_openpt(3) and ioctl(2).
absl::StatusOr<FdPair> MakePseudoTerminal(int like);

// Gives a terminal the size of another one. Does nothing for a descriptor that isn't a terminal.
void CopyWindowSize(int from, int to);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OUTPUT_CONSOLE_H_
