#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_DATASET_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_DATASET_H_

#include <ATen/core/Generator.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ddprun {

// The samples of one backward pass: n of them, in the order in which load() was asked for them.
struct Batch {
  torch::Tensor inputs = {};   // [n, …]; more rows, or time first ([T, n, …]), are fine, too
  torch::Tensor targets = {};  // the same; undefined if there are none
  // More tensors, of any shape: lengths, masks; on the same device.
  std::vector<torch::Tensor> more = {};
  // The samples' numbers in the dataset, filled in by the Session; also those of samples that don't
  // count, on a rank for which none was left.
  std::vector<int64_t> samples = {};
};

// A dataset whose samples are loaded by number.
struct Dataset {
  int64_t size = 0;  // number of samples
  // The samples with these numbers, below size, on the CPU. Everything random comes from
  // `generator`, so that a resumed run sees what an uninterrupted one would have seen.
  // All of them: which samples are fit to learn from is decided before. Threads: any, several at
  // once. An exception ends the training, and so does a batch of other rows (INVALID_ARGUMENT).
  std::function<Batch(const std::vector<int64_t>& samples, const at::Generator& generator)> load =
      {};
  std::string samples_name = "samples";  // for people: "digits"
  // False: a Session deals out the samples of each epoch in their own order. A step takes the next
  // ones; the first rank gets the first part of them.
  bool shuffle = true;
};

// Rows of two tensors in memory, on the CPU: sample i is inputs[i], targets[i].
// targets may be undefined. Errors: throws INVALID_ARGUMENT — another number of rows.
Dataset TensorDataset(torch::Tensor inputs, torch::Tensor targets);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_DATASET_H_
