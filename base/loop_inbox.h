#ifndef DDPRUN_BASE_LOOP_INBOX_H_
#define DDPRUN_BASE_LOOP_INBOX_H_

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/event_loop.h"

namespace ddprun {

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

#endif  // DDPRUN_BASE_LOOP_INBOX_H_
