#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVE_QUEUE_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVE_QUEUE_H_

#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace ddprun::worker {

// One collective under way, as c10d knows it: with a future that holds the result's tensors.
// Threads: any.
class CollectiveWork : public c10d::Work {
 public:
  CollectiveWork(int rank, c10d::OpType type, std::vector<at::Tensor> result);

  // Call one of both, once. Callbacks of the future run in the caller's thread.
  void Complete();
  void Fail(const std::exception_ptr& error);

  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override { return result_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  const std::vector<at::Tensor> result_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

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
