#include "worker/torch/session/optimizer_steps.h"

#include "absl/strings/str_cat.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"

namespace ddprun::worker {
namespace {

// How many steps the optimizer has taken; 0: it doesn't count them.
int64_t TakenBy(const torch::optim::Optimizer& optimizer) {
  if (const auto* adamw = dynamic_cast<const FusedAdamW*>(&optimizer)) return adamw->steps_taken();
  if (const auto* sgd = dynamic_cast<const FusedSGD*>(&optimizer)) return sgd->steps_taken();
  if (const auto* zero = dynamic_cast<const ZeroOptimizer*>(&optimizer)) {
    return zero->implementation().steps_taken;
  }
  return 0;
}

}  // namespace

void OptimizerSteps::Note(const torch::optim::Optimizer& optimizer) { noted_ = TakenBy(optimizer); }

absl::Status OptimizerSteps::Check(const torch::optim::Optimizer& optimizer, int64_t step) const {
  if (TakenBy(optimizer) == noted_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "after step ", step,
      " the program has stepped session.optimizer() itself: Session::Step() does so, and the "
      "update would be applied twice; call Step() alone"));
}

}  // namespace ddprun::worker
