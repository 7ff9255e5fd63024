#include "base/loop_inbox.h"

#include <utility>

#include "base/check.h"

namespace ddprun {

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
