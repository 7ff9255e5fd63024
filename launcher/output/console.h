#ifndef DDPRUN_LAUNCHER_OUTPUT_CONSOLE_H_
#define DDPRUN_LAUNCHER_OUTPUT_CONSOLE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "launcher/output/console_sink.h"

namespace ddprun::launcher {

// Writes whole lines of many streams to one descriptor (ConsoleSink) without blocking the loop.
// Lines that the descriptor doesn't accept now are kept.
//
// Lines of different streams never mix: kept bytes are written first.
// Threads: the loop's.
class Console : public std::enable_shared_from_this<Console> {
 public:
  // The one console for `fd` on this thread, so that all its streams share the order. `fd` stays
  // the caller's and must outlive it.
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

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OUTPUT_CONSOLE_H_
