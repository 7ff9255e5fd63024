#ifndef DDPRUN_WORKER_TORCH_SESSION_HEALING_CHOICE_H_
#define DDPRUN_WORKER_TORCH_SESSION_HEALING_CHOICE_H_

#include <cstdint>

#include "absl/time/time.h"

namespace ddprun::worker {

// Whether those who have the state are held up for less when they send it beside their next step,
// in which they compute for the others, too, than when all wait for it before that.
// Params: bytes: of the state. step_time: of a step that all compute. missing, learners: how many
// lack the state, and how many have it; both above 0.
bool BesideTakesLess(int64_t bytes, absl::Duration step_time, uint32_t missing, uint32_t learners);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_HEALING_CHOICE_H_
