#ifndef DDPRUN_TESTS_FUZZ_CONVERT_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_CONVERT_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// Reads `bytes` as a message of each side of the stream. What is taken must come back unchanged
// from a second trip over the wire; aborts if it doesn't. Returns how many of the two were taken.
int ConvertBytes(absl::string_view bytes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_FUZZ_CONVERT_FUZZ_H_
