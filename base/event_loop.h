#ifndef DDPRUN_BASE_EVENT_LOOP_H_
#define DDPRUN_BASE_EVENT_LOOP_H_

#include <uv.h>

#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/instant.h"

namespace ddprun {

// The only place where a process of ours waits: descriptors, one-shot timers, signals and calls
// posted from other threads, over one libuv loop.
//
// Threads: everything on the thread that made it ("the loop"), except Post(), which any thread may
// call. Handlers run on the loop, one at a time, and may destroy the handle that called them.
class EventLoop {
 public:
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Handles events until Stop(). Returns at once if Stop() was called before.
  void Run();
  // Makes Run() return after the handler that is running.
  void Stop();
  // Has `call` run on the loop, in the order of posting. Threads: any.
  void Post(std::function<void()> call);
  // CLOCK_MONOTONIC now.
  Instant Now() const;
  // True on the loop's thread; for checks in stateful methods.
  bool OnLoop() const { return std::this_thread::get_id() == thread_; }

  uv_loop_t* uv() { return &loop_; }

 private:
  EventLoop() = default;
  void RunPosted();

  uv_loop_t loop_{};
  uv_async_t wake_{};
  std::thread::id thread_ = std::this_thread::get_id();
  bool stopped_ = false;
  std::mutex mutex_;  // guards posted_, the only state shared by threads
  std::vector<std::function<void()>> posted_;
};

// A one-shot timer that can be armed again. Destroying it disarms it.
class Timer {
 public:
  Timer(EventLoop* loop, std::function<void()> on_due);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Calls `on_due` once, at or after `at` (rounded up to a millisecond). Infinite disarms. Arming
  // replaces what was armed.
  void Arm(Instant at);
  void Disarm();

 private:
  struct Handle;
  EventLoop* loop_;
  Handle* handle_;  // owned; freed by libuv's close callback
};

// Watches a descriptor, which stays the caller's and must outlive the watch.
class FdWatch {
 public:
  // `on_ready` is called while the descriptor is readable (or at end of file).
  FdWatch(EventLoop* loop, int fd, std::function<void()> on_ready);
  // `on_ready` is called while the descriptor is writable.
  struct Writable {};
  FdWatch(EventLoop* loop, int fd, Writable, std::function<void()> on_ready);
  // `on_ended` is called while the other side writes no more, or the connection is broken; not for
  // what can be read.
  struct Ended {};
  FdWatch(EventLoop* loop, int fd, Ended, std::function<void()> on_ended);
  ~FdWatch();
  FdWatch(const FdWatch&) = delete;
  FdWatch& operator=(const FdWatch&) = delete;

  // Stops and resumes watching: how back-pressure is made.
  void Pause();
  void Resume();
  // Watches for one or both of these from now on, and goes on when the descriptor has an error: the
  // handler is called until it has met the error by reading or writing, and destroys the watch.
  // Requires: at least one.
  void WatchFor(bool readable, bool writable);

 private:
  struct Handle;
  void Begin(EventLoop* loop, int fd, int events, std::function<void()> on_event);

  Handle* handle_;  // owned; freed by libuv's close callback
};

// Receives a signal on the loop instead of in a handler.
class SignalWatch {
 public:
  SignalWatch(EventLoop* loop, int signal_number, std::function<void()> on_signal);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  struct Handle;
  Handle* handle_;  // owned; freed by libuv's close callback
};

// Posts calls to a loop from threads that may outlive the loop and the object that they call, as
// gRPC's do. Once the inbox is closed, none of its calls runs any more, so its owner can be
// destroyed while those threads still hold the inbox.
class LoopInbox : public std::enable_shared_from_this<LoopInbox> {
 public:
  // `loop` outlives Close().
  static std::shared_ptr<LoopInbox> Create(EventLoop* loop);

  // Has `call` run on the loop, in the order of posting. False: closed, `call` was dropped.
  // Threads: any.
  bool Post(std::function<void()> call);

  // Threads of what follows: the loop's.

  // Closes the inbox: drops the calls that were posted before, and refuses later ones. A posted
  // call may do it.
  void Close();
  // Closes the inbox, but runs the calls that were posted before.
  void RunPostedAndClose();
  bool open() const { return open_; }

 private:
  explicit LoopInbox(EventLoop* loop) : loop_(loop) {}
  void Refuse();
  void RunPosted();

  EventLoop* const loop_;
  bool dropped_ = false;  // by Close(); the loop's
  std::mutex mutex_;      // guards what follows
  bool open_ = true;      // written by the loop alone, which so may read it without the lock
  std::vector<std::function<void()>> posted_;
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_EVENT_LOOP_H_
