#ifndef DDPRUN_WORKER_DATA_CORE_SAMPLER_CHECK_H_
#define DDPRUN_WORKER_DATA_CORE_SAMPLER_CHECK_H_

#include "absl/status/status.h"
#include "ddprun/elastic_sampler.h"

namespace ddprun {

// Checks that a state's values are possible. Errors: INVALID_ARGUMENT — the text has the values.
absl::Status CheckSamplerState(const SamplerState& state);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_DATA_CORE_SAMPLER_CHECK_H_
