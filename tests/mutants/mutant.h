#ifndef DDPRUN_TESTS_MUTANTS_MUTANT_H_
#define DDPRUN_TESTS_MUTANTS_MUTANT_H_

#include <cstdlib>
#include <cstring>

namespace ddprun::testing {

// Whether DDPRUN_MUTANT names this one.
inline bool IsAwake(const char* mutant) {
  const char* awake = std::getenv("DDPRUN_MUTANT");
  return awake != nullptr && std::strcmp(awake, mutant) == 0;
}

}  // namespace ddprun::testing

// What mutate.py writes: looked up once for each place.
#define DDPRUN_MUTANT(name)                                        \
  ([] {                                                            \
    static const bool kAwake = ::ddprun::testing::IsAwake(name);   \
    return kAwake;                                                 \
  }())

#endif  // DDPRUN_TESTS_MUTANTS_MUTANT_H_
