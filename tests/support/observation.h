#ifndef DDPRUN_TESTS_SUPPORT_OBSERVATION_H_
#define DDPRUN_TESTS_SUPPORT_OBSERVATION_H_

#include <nlohmann/json.hpp>

namespace ddprun::testing {

// All that a program can see of how it was started; `environment`: main()'s third argument. What
// tests/support/observing_worker.py is for scripts.
nlohmann::json Observe(char** argv, char** environment);

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_SUPPORT_OBSERVATION_H_
