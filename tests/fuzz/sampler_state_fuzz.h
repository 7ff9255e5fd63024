#ifndef DDPRUN_TESTS_FUZZ_SAMPLER_STATE_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_SAMPLER_STATE_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun {

// Reads the bytes as a sampler's state, and checks what SamplerState::Parse promises: it takes
// exactly what Serialize() gives, and a sampler goes on from whatever it takes.
// Returns: whether it took them. Aborts if a promise is broken.
bool ReadSamplerStateBytes(absl::string_view bytes);

}  // namespace ddprun

#endif  // DDPRUN_TESTS_FUZZ_SAMPLER_STATE_FUZZ_H_
