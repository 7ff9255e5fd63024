#ifndef DDPRUN_TESTS_FUZZ_ADVICE_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_ADVICE_FUZZ_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// Gives `bytes` to the advisor as a worker's words, and as rules, and aborts when a promise is
// broken: there is always an answer, and advice is one line of a known rule with nothing of the
// worker's in it that a shell would carry out. Returns true when the words got advice; for tests
// that want some to.
bool FuzzAdvice(absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_ADVICE_FUZZ_H_
