#ifndef DDPRUN_LAUNCHER_AGENT_LOOP_INBOX_H_
#define DDPRUN_LAUNCHER_AGENT_LOOP_INBOX_H_

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/event_loop.h"

namespace ddprun::launcher {

// The way to the loop for threads that may outlive what they call: gRPC's. Once closed, nothing
// that was posted here runs any more, so its owner can go while those threads still hold the inbox.
class LoopInbox : public std::enable_shared_from_this<LoopInbox> {
 public:
  // `loop` outlives Close().
  static std::shared_ptr<LoopInbox> Create(EventLoop* loop);

  // Has `call` run on the loop, in the order of posting. False: closed, `call` was dropped.
  // Threads: any.
  bool Post(std::function<void()> call);

  // Runs what was posted before and refuses what comes later. Threads: the loop's.
  void Close();

 private:
  explicit LoopInbox(EventLoop* loop) : loop_(loop) {}
  void RunPosted();

  EventLoop* const loop_;
  std::mutex mutex_;  // guards what follows
  bool closed_ = false;
  std::vector<std::function<void()>> posted_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_LOOP_INBOX_H_
