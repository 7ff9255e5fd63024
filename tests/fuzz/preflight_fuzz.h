#ifndef DDPRUN_TESTS_FUZZ_PREFLIGHT_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_PREFLIGHT_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Reads the bytes as each of the texts that the nodes of a network check leave for each other, and
// as a datagram. What is understood must survive being written and read again, and a network check
// must be able to use it. Returns: whether any of it was understood. Aborts if a promise is broken.
bool ReadPreflightBytes(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_PREFLIGHT_FUZZ_H_
