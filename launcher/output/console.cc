#include "launcher/output/console.h"

#include <sys/epoll.h>

#include <algorithm>
#include <map>

#include "absl/time/time.h"
#include "base/clock.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kLastFlush = absl::Milliseconds(200);

}  // namespace

std::shared_ptr<Console> Console::For(EventLoop* loop, int fd) {
  static thread_local std::map<std::pair<EventLoop*, int>, std::weak_ptr<Console>> consoles;
  std::weak_ptr<Console>& known = consoles[{loop, fd}];
  std::shared_ptr<Console> console = known.lock();
  if (console == nullptr) {
    console.reset(new Console(loop, fd));
    known = console;
  }
  return console;
}

Console::Console(EventLoop* loop, int fd) : loop_(loop), sink_(fd) {}

Console::~Console() {
  const Instant end = MonotonicNow() + kLastFlush;
  while (busy() && sink_.WaitWritable(std::max(absl::ZeroDuration(), end - MonotonicNow()))) {
    Flush();
  }
}

void Console::Write(absl::string_view lines) {
  // Most of it never needs a copy.
  if (!busy()) lines.remove_prefix(sink_.Write(lines));
  absl::StrAppend(&pending_, lines);
  if (busy() && watch_ == nullptr) WatchWritable();
}

void Console::WatchWritable() {
  writable_.Reset(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLOUT, .data = {.fd = sink_.fd()}};
  if (!writable_.valid() || epoll_ctl(writable_.get(), EPOLL_CTL_ADD, sink_.fd(), &event) != 0) {
    sink_.Break();  // it took nothing and can't be waited for
    Flush();
    return;
  }
  watch_ = std::make_unique<FdWatch>(loop_, writable_.get(), [this] { OnWritable(); });
}

void Console::Await(const void* owner, std::function<void()> on_ready) {
  waiting_.emplace_back(owner, std::move(on_ready));
}

void Console::Forget(const void* owner) {
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [&](const auto& entry) { return entry.first == owner; }),
                 waiting_.end());
}

void Console::Flush() { pending_.erase(0, sink_.Write(pending_)); }

void Console::OnWritable() {
  Flush();
  if (busy()) return;
  watch_.reset();
  // Each may write and make us busy again, or drop the last stream, and us with it.
  const std::shared_ptr<Console> self = shared_from_this();
  while (!busy() && !waiting_.empty()) {
    auto on_ready = std::move(waiting_.front().second);
    waiting_.pop_front();
    on_ready();
  }
}

}  // namespace ddprun::launcher
