#ifndef DDPRUN_WORKER_DATA_CORE_SAMPLER_CHECK_H_
#define DDPRUN_WORKER_DATA_CORE_SAMPLER_CHECK_H_

#include "absl/status/status.h"
#include "ddprun/elastic_sampler.h"

namespace ddprun {

// Whether a state's values can be. Error: INVALID_ARGUMENT, with them.
absl::Status CheckSamplerState(const SamplerState& state);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_DATA_CORE_SAMPLER_CHECK_H_
