#ifndef DDPRUN_RENDEZVOUS_WIRE_LOOP_GATE_H_
#define DDPRUN_RENDEZVOUS_WIRE_LOOP_GATE_H_

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "base/event_loop.h"

namespace ddprun::rendezvous {

// The way from gRPC's threads to the loop, for an owner there that may end, and its loop with it,
// while gRPC still calls back: after Close() nothing gets through any more.
class LoopGate {
 public:
  explicit LoopGate(EventLoop* loop) : loop_(loop) {}

  // Has `call` run on the loop, unless the gate is closed by then. `self` keeps the gate alive.
  // Threads: any.
  static void Post(const std::shared_ptr<LoopGate>& self, std::function<void()> call) {
    const std::lock_guard lock(self->mutex_);
    if (self->loop_ == nullptr) return;
    self->loop_->Post([self, call = std::move(call)] {
      if (self->open()) call();
    });
  }

  // Threads: the loop's, both.
  void Close() {
    const std::lock_guard lock(mutex_);
    loop_ = nullptr;
  }
  bool open() const { return loop_ != nullptr; }  // only the loop changes it

 private:
  std::mutex mutex_;
  EventLoop* loop_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_LOOP_GATE_H_
