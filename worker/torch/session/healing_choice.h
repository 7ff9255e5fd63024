#ifndef DDPRUN_WORKER_TORCH_SESSION_HEALING_CHOICE_H_
#define DDPRUN_WORKER_TORCH_SESSION_HEALING_CHOICE_H_

#include <cstdint>

#include "absl/time/time.h"

namespace ddprun::worker {

// Whether ranks that have the state lose less time if they send it beside their next step, in which
// they compute the other ranks' samples as well, than if all wait for the transfer before the step.
// Params: bytes: of the state. step_time: of a step that all ranks compute. missing, learners: how
// many ranks lack the state, and how many have it; both above 0.
bool BesideTakesLess(int64_t bytes, absl::Duration step_time, uint32_t missing, uint32_t learners);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_HEALING_CHOICE_H_
