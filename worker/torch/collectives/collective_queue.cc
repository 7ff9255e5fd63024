#include "worker/torch/collectives/collective_queue.h"

#include <exception>
#include <utility>

#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {

CollectiveWork::CollectiveWork(int rank, c10d::OpType type, std::vector<at::Tensor> result)
    : c10d::Work(rank, type),
      result_(std::move(result)),
      future_(
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
}

// The future first: a thread that has waited for the work may ask the future for its value.
void CollectiveWork::Complete() {
  future_->markCompleted(c10::IValue(result_));
  finish();
}

void CollectiveWork::Fail(const std::exception_ptr& error) {
  future_->setError(error);
  finish(error);
}

bool CollectiveWork::isSuccess() const { return future_->completed() && !future_->hasError(); }

std::exception_ptr CollectiveWork::exception() const {
  return future_->hasError() ? future_->exception_ptr() : nullptr;
}

namespace {

// Tries the task. Returns whether it is done, also if it failed with `error`.
bool Attempt(const CollectiveQueue::Task& task, std::exception_ptr& error) {
  try {
    return task.attempt();
  } catch (...) {
    error = std::current_exception();
    return true;
  }
}

// Releases what the task holds before it completes the work: the waiting thread may need that
// memory.
void Settle(CollectiveQueue::Task task, const std::exception_ptr& error) {
  task.attempt = nullptr;
  task.run = nullptr;
  if (error != nullptr) return task.work->Fail(error);
  task.work->Complete();
}

}  // namespace

CollectiveQueue::~CollectiveQueue() {
  std::deque<Task> abandoned;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    abandoned.swap(tasks_);
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  const auto error = std::make_exception_ptr(PeerFailure("the process group was destroyed"));
  for (const Task& task : abandoned) task.work->Fail(error);
}

void CollectiveQueue::Submit(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (!task.attempt || busy_ || !tasks_.empty()) {
      return Queue(std::move(task), /*front=*/false);
    }
    busy_ = true;
  }
  std::exception_ptr error;
  if (Attempt(task, error)) {
    Release();
    return Settle(std::move(task), error);
  }
  const std::lock_guard lock(mutex_);
  busy_ = false;
  Queue(std::move(task), /*front=*/true);
}

// Requires: the lock is held.
void CollectiveQueue::Queue(Task task, bool front) {
  if (front) {
    tasks_.push_front(std::move(task));
  } else {
    tasks_.push_back(std::move(task));
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  changed_.notify_all();
}

void CollectiveQueue::Release() {
  const std::lock_guard lock(mutex_);
  busy_ = false;
  if (!tasks_.empty()) changed_.notify_all();
}

void CollectiveQueue::Loop() {
  while (true) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || (!busy_ && !tasks_.empty()); });
      if (stop_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
    }
    std::exception_ptr error;
    try {
      task.run();
    } catch (...) {
      error = std::current_exception();
    }
    Release();
    Settle(std::move(task), error);
  }
}

}  // namespace ddprun::worker
