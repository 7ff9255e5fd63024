#ifndef DDPRUN_TESTS_SUPPORT_INPUTS_H_
#define DDPRUN_TESTS_SUPPORT_INPUTS_H_

#include <cstdlib>

#include "absl/strings/string_view.h"
#include "tests/support/slow.h"

namespace ddprun {

// How many of `all` seeds or random inputs a test tries: under sanitizers, which take five times as
// long, a quarter, because most inputs exercise the same code. `scripts/test --all` tries all of
// them (DDPRUN_TEST_WHOLE=1), and so does the program when it is run by hand.
template <typename T>
T Inputs(T all) {
  const char* const whole = std::getenv("DDPRUN_TEST_WHOLE");
  const bool is_whole = whole != nullptr && absl::string_view(whole) == "1";
  return Slow() > 4 && !is_whole ? all / 4 : all;
}

}  // namespace ddprun

#endif  // DDPRUN_TESTS_SUPPORT_INPUTS_H_
