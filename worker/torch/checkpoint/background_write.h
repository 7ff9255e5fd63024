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

// Copies of tensors in CPU memory, as they were at one moment. The memory stays for the next copy:
// only the first one pays for getting it from the kernel. Threads: one at a time.
class TensorCopies {
 public:
  // The same names with copies, which the next Take overwrites. Of a GPU's tensors they are in
  // pinned memory.
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
  // Waits for it, or until `stop` is requested: a disk may take longer than who waits has. Returns
  // whether Finish needn't wait any more.
  bool Await(const std::stop_token& stop);
  // Waits for it. OK when there is none.
  absl::Status Finish();
  // Waits for it, where nobody asks how it went: an error is logged.
  void Abandon();
  // One was started, and wasn't finished.
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
