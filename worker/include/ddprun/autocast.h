#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_AUTOCAST_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_AUTOCAST_H_

#include <torch/types.h>

#include <string>

#include "absl/status/statusor.h"

namespace ddprun {

// The type in which the forward pass is computed; parameters and gradients stay float32.
enum class MixedPrecision { kNo, kFloat16, kBFloat16 };

// "no", "fp16" or "bf16". Errors: INVALID_ARGUMENT — another word; the text lists them.
absl::StatusOr<MixedPrecision> ParseMixedPrecision(const std::string& word);

// While an Autocast lives, matrix products and convolutions on `device` run in half precision, and
// operators that need range (losses, norms, sums) in float32, as with torch.autocast. kNo: changes
// nothing, also within another Autocast. Put it around the forward pass and the loss, not around
// backward().
//
//   {
//     const Autocast autocast(context.device().type(), MixedPrecision::kBFloat16);
//     loss = cross_entropy(ddp->Forward([&] { return model->forward(batch); }), target);
//   }
//   loss.backward();
//
// Autocasts nest; they end in the opposite order. Threads: holds for the thread that made it.
class Autocast {
 public:
  Autocast(torch::DeviceType device, MixedPrecision precision);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const torch::DeviceType device_;
  bool enabled_before_;
  torch::Dtype type_before_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_AUTOCAST_H_
