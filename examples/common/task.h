#ifndef DDPRUN_EXAMPLES_COMMON_TASK_H_
#define DDPRUN_EXAMPLES_COMMON_TASK_H_

#include <ATen/core/Generator.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/common/prefetcher.h"

namespace ddprun::examples {

// What an example brings: a model, samples and a loss. Trainer does the rest.
// Threads: one, but for Load.
class Task {
 public:
  virtual ~Task() = default;

  // "digits": of the program, and of what it learns from.
  virtual std::string name() const = 0;
  virtual std::string samples_name() const = 0;
  virtual std::shared_ptr<torch::nn::Module> model() const = 0;
  // Number of training samples.
  virtual int64_t size() const = 0;

  // The samples with these numbers, below size(), on the CPU. Everything random comes from
  // `generator`, so that a resumed run sees what an uninterrupted one would have seen.
  // Threads: any, several at once.
  virtual Batch Load(const std::vector<int64_t>& samples, const at::Generator& generator) const = 0;

  // The model's outputs, and their mean loss [].
  virtual torch::Tensor Forward(const torch::Tensor& inputs) = 0;
  virtual torch::Tensor Loss(const torch::Tensor& outputs, const torch::Tensor& targets) = 0;

  // A figure over samples that are not trained on: "accuracy". A collective.
  virtual std::string figure_name() const = 0;
  virtual absl::StatusOr<double> Evaluate() = 0;
  // "accuracy 97.8% on 360 held-out digits".
  virtual std::string Describe(double figure) const = 0;
};

}  // namespace ddprun::examples

#endif  // DDPRUN_EXAMPLES_COMMON_TASK_H_
