#ifndef DDPRUN_TESTS_FUZZ_SUPERVISOR_CHECK_H_
#define DDPRUN_TESTS_FUZZ_SUPERVISOR_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddprun::launcher {

struct SupervisorFuzzResult {
  std::string problem;  // "" = none
  uint64_t spawned = 0;
  uint64_t kept = 0;      // workers that went on in another generation
  uint64_t done = 0;      // generations whose workers all ended well
  uint64_t verdicts = 0;  // that were heard
};

// Plays the bytes as events into an agent's core: a shell that keeps its contract, workers that do
// what they like, a keeper that now and then speaks of others' workers, and a service that says
// anything the wire lets through. After each step the invariants hold, and the effects are such as
// a shell can carry out and the service takes. In the end the agent is asked to end, and does.
SupervisorFuzzResult FuzzSupervisor(const uint8_t* data, size_t size);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_FUZZ_SUPERVISOR_CHECK_H_
