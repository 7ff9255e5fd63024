#ifndef DDPRUN_TESTS_SUPPORT_OBSERVATION_H_
#define DDPRUN_TESTS_SUPPORT_OBSERVATION_H_

#include <nlohmann/json.hpp>

namespace ddprun::testing {

// Returns all that a program can see of how it was started. tests/support/observing_worker.py does
// the same for scripts. Params: environment: main()'s third argument.
nlohmann::json Observe(char** argv, char** environment);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_OBSERVATION_H_
