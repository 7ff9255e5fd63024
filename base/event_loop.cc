#include "base/event_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"

namespace ddprun {
namespace {

// libuv handles live until their close callback has run: each sits in a heap block that it frees.
template <typename Handle>
void CloseHandle(Handle* handle) {
  handle->on_event = nullptr;
  uv_close(reinterpret_cast<uv_handle_t*>(&handle->uv),
           [](uv_handle_t* uv) { delete static_cast<Handle*>(uv->data); });
}

template <typename Handle>
void Call(void* data) {
  // A copy: the callee may destroy the handle.
  auto on_event = static_cast<Handle*>(data)->on_event;
  if (on_event) on_event();
}

}  // namespace

struct Timer::Handle {
  uv_timer_t uv{};
  std::function<void()> on_event;
};

struct FdWatch::Handle {
  uv_poll_t uv{};
  int events = 0;
  bool goes_on = false;  // after an error, at which libuv stops
  std::function<void()> on_event;

  static void OnPoll(uv_poll_t* uv, int status, int /*events*/) {
    const auto* handle = static_cast<Handle*>(uv->data);
    if (status < 0 && handle->goes_on) uv_poll_start(uv, handle->events, &OnPoll);
    Call<Handle>(uv->data);
  }
};

struct SignalWatch::Handle {
  uv_signal_t uv{};
  std::function<void()> on_event;
};

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  std::unique_ptr<EventLoop> loop(new EventLoop());
  if (int error = uv_loop_init(&loop->loop_); error != 0) {
    return absl::InternalError(absl::StrCat("uv_loop_init: ", uv_strerror(error)));
  }
  loop->wake_.data = loop.get();
  const int error = uv_async_init(&loop->loop_, &loop->wake_, [](uv_async_t* wake) {
    static_cast<EventLoop*>(wake->data)->RunPosted();
  });
  DDPRUN_CHECK(error == 0, uv_strerror(error));
  return loop;
}

EventLoop::~EventLoop() {
  uv_close(reinterpret_cast<uv_handle_t*>(&wake_), nullptr);
  uv_run(&loop_, UV_RUN_DEFAULT);  // runs the close callbacks
  const int error = uv_loop_close(&loop_);
  DDPRUN_CHECK(error == 0, "a handle outlives its event loop");
}

void EventLoop::Run() {
  DDPRUN_CHECK(OnLoop(), "Run() is for the thread that made the loop");
  while (!stopped_) uv_run(&loop_, UV_RUN_ONCE);
  stopped_ = false;
}

void EventLoop::Stop() {
  DDPRUN_CHECK(OnLoop(), "Stop() is for the loop; Post() it from other threads");
  stopped_ = true;
  uv_stop(&loop_);  // a timer's handler runs before the wait of its round, which must not follow
}

void EventLoop::Post(std::function<void()> call) {
  // The wake-up stays under the lock, so that no caller touches wake_ after its call was run.
  const std::lock_guard lock(mutex_);
  posted_.push_back(std::move(call));
  uv_async_send(&wake_);
}

void EventLoop::RunPosted() {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(posted_);
  }
  for (auto& call : calls) call();
}

Instant EventLoop::Now() const { return MonotonicNow(); }

Timer::Timer(EventLoop* loop, std::function<void()> on_due) : loop_(loop), handle_(new Handle) {
  handle_->on_event = std::move(on_due);
  handle_->uv.data = handle_;
  uv_timer_init(loop->uv(), &handle_->uv);
}

Timer::~Timer() { CloseHandle(handle_); }

void Timer::Arm(Instant at) {
  if (at.is_infinite()) return Disarm();
  // libuv has the same clock in whole milliseconds, cut off: a time rounded up on that clock is
  // never reached early. (Waking early would spin.)
  uv_update_time(loop_->uv());
  const int64_t due = at.nanoseconds() / 1'000'000 + 1;
  const auto ms =
      static_cast<uint64_t>(std::max<int64_t>(0, due - static_cast<int64_t>(uv_now(loop_->uv()))));
  uv_timer_start(
      &handle_->uv, [](uv_timer_t* uv) { Call<Handle>(uv->data); }, ms, 0);
}

void Timer::Disarm() { uv_timer_stop(&handle_->uv); }

FdWatch::FdWatch(EventLoop* loop, int fd, std::function<void()> on_ready) : handle_(new Handle) {
  Begin(loop, fd, UV_READABLE | UV_DISCONNECT, std::move(on_ready));
}

FdWatch::FdWatch(EventLoop* loop, int fd, Writable /*tag*/, std::function<void()> on_ready)
    : handle_(new Handle) {
  Begin(loop, fd, UV_WRITABLE, std::move(on_ready));
}

FdWatch::FdWatch(EventLoop* loop, int fd, Ended /*tag*/, std::function<void()> on_ended)
    : handle_(new Handle) {
  Begin(loop, fd, UV_DISCONNECT, std::move(on_ended));
}

void FdWatch::Begin(EventLoop* loop, int fd, int events, std::function<void()> on_event) {
  handle_->on_event = std::move(on_event);
  handle_->events = events;
  handle_->uv.data = handle_;
  const int error = uv_poll_init(loop->uv(), &handle_->uv, fd);
  DDPRUN_CHECK(error == 0, uv_strerror(error));
  Resume();
}

FdWatch::~FdWatch() { CloseHandle(handle_); }

void FdWatch::Pause() { uv_poll_stop(&handle_->uv); }

void FdWatch::Resume() { uv_poll_start(&handle_->uv, handle_->events, &Handle::OnPoll); }

void FdWatch::WatchFor(bool readable, bool writable) {
  handle_->events = (readable ? UV_READABLE | UV_DISCONNECT : 0) | (writable ? UV_WRITABLE : 0);
  handle_->goes_on = true;
  Resume();
}

SignalWatch::SignalWatch(EventLoop* loop, int signal_number, std::function<void()> on_signal)
    : handle_(new Handle) {
  handle_->on_event = std::move(on_signal);
  handle_->uv.data = handle_;
  uv_signal_init(loop->uv(), &handle_->uv);
  uv_signal_start(
      &handle_->uv, [](uv_signal_t* uv, int /*number*/) { Call<Handle>(uv->data); }, signal_number);
}

SignalWatch::~SignalWatch() { CloseHandle(handle_); }

std::shared_ptr<LoopInbox> LoopInbox::Create(EventLoop* loop) {
  return std::shared_ptr<LoopInbox>(new LoopInbox(loop));
}

bool LoopInbox::Post(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  if (!open_) return false;
  posted_.push_back(std::move(call));
  // One wake-up for a burst. Under the lock: after Close() the loop may be gone.
  if (posted_.size() == 1) {
    loop_->Post([inbox = weak_from_this()] {
      if (const auto held = inbox.lock()) held->RunPosted();
    });
  }
  return true;
}

void LoopInbox::Close() {
  Refuse();
  dropped_ = true;
  RunPosted();  // destroys them, outside of the lock
}

void LoopInbox::RunPostedAndClose() {
  Refuse();
  RunPosted();
}

void LoopInbox::Refuse() {
  DDPRUN_CHECK(loop_->OnLoop(), "an inbox is closed on its loop");
  const std::lock_guard lock(mutex_);
  open_ = false;
}

void LoopInbox::RunPosted() {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(posted_);
  }
  for (auto& call : calls) {
    if (dropped_) return;
    call();
  }
}

}  // namespace ddprun
