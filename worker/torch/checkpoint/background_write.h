#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_BACKGROUND_WRITE_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_BACKGROUND_WRITE_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "absl/status/status.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"

namespace ddprun::worker {

// Copies of tensors in CPU memory, as they were at one moment. The memory is kept for the next
// copy, because getting it from the kernel takes time. Threads: one at a time.
class TensorCopies {
 public:
  // Returns copies under the same names, which the next Take overwrites. Copies of a GPU's tensors
  // are in pinned memory.
  CheckpointTensors Take(const CheckpointTensors& tensors);

 private:
  CheckpointTensors copies_;
};

// One write at a time, in a thread of its own, beside training. Threads: one; `write` runs in
// another.
class BackgroundWrite {
 public:
  BackgroundWrite() = default;
  ~BackgroundWrite();  // as Abandon
  BackgroundWrite(const BackgroundWrite&) = delete;
  BackgroundWrite& operator=(const BackgroundWrite&) = delete;

  // Requires: !is_open().
  void Start(std::function<absl::Status()> write);
  // Waits for the write, or until `stop` is requested, because a disk may take longer than the
  // caller can wait. Returns whether the write is done, so that Finish won't wait.
  bool Await(const std::stop_token& stop);
  // Waits for the write and returns its result; OK if there is none.
  absl::Status Finish();
  // Waits for the write and logs its error.
  void Abandon();
  // Whether a write was started, and Finish or Abandon wasn't called since.
  bool is_open() const { return thread_.joinable(); }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool is_done_ = false;
  absl::Status written_;  // the thread's until it is joined
  std::thread thread_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_BACKGROUND_WRITE_H_
