#ifndef DDPRUN_LAUNCHER_OS_CONSOLE_H_
#define DDPRUN_LAUNCHER_OS_CONSOLE_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/event_loop.h"
#include "base/fd.h"

namespace ddprun::launcher {

// Writes whole lines of many streams to one descriptor that others may share and that may be slow
// (a paused terminal, `| less`), without ever blocking the loop and without setting O_NONBLOCK on a
// file description that is not ours alone: a shell or a worker would suddenly get EAGAIN.
//
// Lines of different streams never mix: what a full descriptor did not take goes first. Writes of
// up to PIPE_BUF bytes are atomic on pipes (pipe(7)), so lines of several agents on one pipe stay
// whole too.
// Threads: the loop's.
class Console : public std::enable_shared_from_this<Console> {
 public:
  // The one console for `fd` on this thread, so that all its streams share the order. `fd` stays
  // the caller's and must outlive it.
  static std::shared_ptr<Console> For(EventLoop* loop, int fd);
  // Gives what is left up to 200 ms to be taken.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Takes complete lines and writes what the descriptor takes now, the rest when it is writable.
  // Bound: the caller asks busy() first, or knows a bound of its own.
  void Write(absl::string_view lines);
  // True while something that was taken is not written yet.
  bool busy() const { return !pending_.empty(); }
  // Calls `on_ready` once when the console is not busy; first come, first served. `owner` is for
  // Forget().
  void Await(const void* owner, std::function<void()> on_ready);
  void Forget(const void* owner);

 private:
  Console(EventLoop* loop, int fd);
  void Open(int fd);
  // Writes as much as possible of pending_ without blocking.
  void Flush();
  // The same of `bytes`. Returns how many are done with: written, or dropped since nobody reads.
  size_t WriteOut(absl::string_view bytes);
  ssize_t WriteSome(absl::string_view bytes);
  void WatchWritable();
  void OnWritable();

  EventLoop* loop_;
  int fd_;  // what is written to: own_ or the caller's
  Fd own_;  // a second, non-blocking description of the same pipe or terminal
  bool socket_ = false;
  bool regular_ = false;    // a file: no need to write line by line
  bool ask_first_ = false;  // blocking and not to be reopened: poll(2) before each write
  bool broken_ = false;     // the reader is gone; everything is dropped
  // An epoll instance that is readable when fd_ is writable: libuv makes what it watches
  // non-blocking, so it must not watch fd_ itself.
  Fd writable_;
  std::string pending_;
  std::deque<std::pair<const void*, std::function<void()>>> waiting_;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_CONSOLE_H_
