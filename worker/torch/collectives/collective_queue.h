#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVE_QUEUE_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVE_QUEUE_H_

#include <c10/util/intrusive_ptr.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "worker/torch/collectives/collective_work.h"

namespace ddprun::worker {

// Runs a group's collectives one after the other, in the order of their submission, so that they
// overlap with what the submitting thread does next. They run in the queue's own thread, which
// starts when it is first needed. But if the queue is idle, the submitter tries the collective
// itself, which saves two thread switches when the peers are in step.
// Threads: any.
class CollectiveQueue {
 public:
  struct Task {
    c10::intrusive_ptr<CollectiveWork> work;
    // Runs what can be run without sleeping; true: the task is done. Unset: not to be tried.
    std::function<bool()> attempt;
    // Runs the task, or what `attempt` left of it. Both throw the error with which the work fails.
    std::function<void()> run;
  };

  CollectiveQueue() = default;
  // Fails the tasks that haven't begun, and waits for the one that has: make it end first.
  ~CollectiveQueue();
  CollectiveQueue(const CollectiveQueue&) = delete;
  CollectiveQueue& operator=(const CollectiveQueue&) = delete;

  void Submit(Task task);

 private:
  void Queue(Task task, bool front);
  void Loop();
  void Release();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool busy_ = false;  // a task is being run, by the thread or by a submitter
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVE_QUEUE_H_
