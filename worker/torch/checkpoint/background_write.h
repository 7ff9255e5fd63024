#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_BACKGROUND_WRITE_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_BACKGROUND_WRITE_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

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

// Finds checkpoints that no run can go on from. Proof is a parameter with a NaN or an infinite
// value that it didn't have when this program made its model, or a NaN in the optimizer's state,
// which the next step puts into the parameter. Nothing else is proof: buffers and the program's
// states may have infinite values on purpose (masks, best figures so far), a parameter may have had
// some from the beginning (the bias of a class that must not be chosen), and an infinite second
// moment stops one element but not training.
//
// Threads: one; any while no thread calls Accept.
class FiniteWatch {
 public:
  // Reads all parameters once. Requires: the module has the values that training begins with, or
  // those of a checkpoint that was taken.
  FiniteWatch(const torch::nn::Module& module, torch::optim::Optimizer& optimizer);

  // Describes the first proof, in the module's order, in a checkpoint's or a shard's tensors: "the
  // parameter 'fc.weight' has a NaN"; "" = there is none. Reads parameters and the optimizer's
  // state once. Requires: dense tensors.
  std::string FindBad(const CheckpointTensors& tensors) const;

  // Call it when training begins with these tensors: their values that aren't finite are no proof
  // from now on.
  void Accept(const CheckpointTensors& tensors);

 private:
  std::vector<std::string> parameters_;  // the ones that are checked, without kModelPrefix
  std::set<std::string> accepted_;       // the optimizer's tensors that aren't checked
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_BACKGROUND_WRITE_H_
